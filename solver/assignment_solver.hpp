// Assignment solvers behind one interface: items into the bins of a pipeline, for the largest load or for the
// makespan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/scheduler.hpp"
#include "solver/bins.hpp"
#include "solver/load_pipeline.hpp"

namespace dflop {

class MakespanBounds;

/// Items, bins and what is to be small: the largest load of `bins`, or the makespan of `pipeline` where there
/// is one.
struct AssignmentProblem {
  BinProblem bins;
  const LoadPipeline* pipeline = nullptr;  ///< of bins.dp replicas and bins.microbatches()
  Features features = {};                  ///< of the pipeline's loads
  MakespanBounds* bounds =
      nullptr;  ///< of the pipeline, shared by the problems of many batches; may be absent

  /// The value of an assignment, in seconds.
  double objective(std::span<const std::int32_t> bin) const;
};

struct SolveLimits {
  std::uint64_t seed = 0;
  /// Work that a search may do, in its own steps; 0: what it thinks fit. The same result on every machine.
  std::int64_t steps = 0;
  /// Wall clock from the call on, in place of steps.
  std::optional<Seconds> time = {};
  std::stop_token stop = {};
  /// Called with each better assignment that obeys the caps, and its objective; may be empty.
  std::function<void(std::span<const std::int32_t>, double)> improved = {};
  std::uint64_t stream = 0;  ///< tells apart problems of one seed, as iterations
};

struct AssignmentSolution {
  std::vector<std::int32_t> bin;  ///< per item; empty if infeasible
  double objective_s = 0;
  double bound_s = 0;  ///< no assignment has a smaller objective
  BoundKind bound_kind = BoundKind::simple;
  ScheduleStatus status = ScheduleStatus::heuristic;
  Seconds time{0};     ///< measured
  std::string reason;  ///< of infeasible and fallback

  /// (objective - bound) / bound, proven.
  double gap() const { return bound_s > 0 ? (objective_s - bound_s) / bound_s : 0.0; }
};

class AssignmentSolver {
 public:
  virtual ~AssignmentSolver() = default;
  virtual std::string_view name() const = 0;

  /// Every item in exactly one bin, no bin empty unless allowed, all caps obeyed; or status infeasible. Safe
  /// to call from several threads at once.
  /// @throws Error (input) if there are fewer items than bins and no bin may be empty.
  virtual AssignmentSolution solve(const AssignmentProblem& problem, const SolveLimits& limits) const = 0;
};

}  // namespace dflop
