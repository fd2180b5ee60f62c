// Planner: chooses a Plan for a model, a cluster and the data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cost_model.hpp"
#include "core/executor.hpp"
#include "core/plan.hpp"

namespace dflop {

/// The samples of one iteration.
using Batch = std::vector<Sample>;

/// What every planner leaves as it is given.
struct PlanOptions {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  Recomputation recomputation = Recomputation::full;
  bool zero1 = true;
  bool sequence_parallel = true;
  int chunks = 1;         ///< stages of each pipeline rank; more than 1 only for planners of uniform plans
  Bytes gradient_bucket;  ///< see Plan
  RankOrder placement = RankOrder::stage_major;
};

struct PlanRequest {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const CostModel& cost;
  const Executor& executor;
  int gbs = 0;
  std::span<const Sample> profile;  ///< sampled items, for objectives that are means over the data
  std::span<const Batch> batches;   ///< whole iterations, for candidates that are run
  std::uint64_t seed = 0;
  PlanOptions options;
  /// Called now and then with done and total; may be empty. May be called from several threads, never at
  /// once.
  std::function<void(std::int64_t, std::int64_t)> progress;
};

struct PlanResult {
  std::optional<Plan> plan;       ///< absent: nothing is feasible
  Seconds objective{0};           ///< in the planner's own terms; see its header
  std::string infeasible_reason;  ///< which constraint fails, and by how much it is missed at best
  std::int64_t candidates = 0;    ///< configurations looked at
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const = 0;

  /// The same request gives the same result, whatever the number of threads.
  virtual PlanResult plan(const PlanRequest& request) const = 0;
};

}  // namespace dflop
