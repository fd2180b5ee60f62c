// Scheduler: puts the samples of one global batch into microbatches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/cost_model.hpp"
#include "core/plan.hpp"

namespace dflop {

enum class ScheduleStatus : std::uint8_t {
  heuristic,   ///< a solution without proof
  optimal,     ///< proven
  node_limit,  ///< best found when the node budget ended
  time_limit,  ///< best found when the time ended
  fallback,    ///< the exact method refused or failed; the heuristic's solution
};

std::string_view to_string(ScheduleStatus status);

struct ScheduleRequest {
  std::span<const Sample> samples;  ///< one global batch
  const Plan& plan;
  const ModelSpec& model;
  const CostModel& cost;
  std::uint64_t seed = 0;
  std::uint64_t iteration = 0;
  /// Wall-clock limit; without it only deterministic budgets hold.
  std::optional<Seconds> time_limit;
};

struct ScheduleResult {
  Assignment assignment;
  Seconds c_max{0};  ///< the largest load of any bin, encoder or LLM (published objective)
  Seconds bound{0};  ///< no assignment has a smaller one
  ScheduleStatus status = ScheduleStatus::heuristic;

  /// (c_max - bound) / bound, proven.
  double gap() const { return bound.count() > 0 ? (c_max - bound) / bound : 0.0; }
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual std::string_view name() const = 0;

  /// Every sample in exactly one bin, no bin empty. The same request gives the same result unless it has a
  /// time limit.
  /// @throws Error (input) if there are fewer samples than bins.
  virtual ScheduleResult schedule(const ScheduleRequest& request) const = 0;
};

}  // namespace dflop
