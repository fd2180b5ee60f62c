// An AssignmentProblem puts items into the bins of a pipeline, for the largest load or for the makespan.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "core/schedule_kinds.hpp"
#include "core/solution.hpp"
#include "solver/bins.hpp"
#include "solver/load_pipeline.hpp"

namespace dflop {

class MakespanBounds;

/// An AssignmentProblem has items, bins and what is to be small: the largest load of `bins`, or the makespan
/// of `pipeline` where there is one.
struct AssignmentProblem {
  BinProblem bins;
  const LoadPipeline* pipeline = nullptr;  ///< of bins.dp replicas and bins.microbatches()
  Features features = {};                  ///< of the pipeline's loads
  MakespanBounds* bounds =
      nullptr;  ///< of the pipeline, shared by the problems of many batches; may be absent

  /// Returns the value of an assignment, in seconds. `bin` has one bin per item.
  double objective(std::span<const std::int32_t> bin) const {
    return pipeline == nullptr ? largest_load(bins, bin)
                               : makespan(*pipeline, load_table(*pipeline, features, bin));
  }
};

/// SolveLimits say when a search for an assignment ends, what it draws from, whom it tells and in which order
/// it leaves the bins.
struct SolveLimits {
  std::uint64_t seed = 0;
  /// A search may do so much work, in its own steps, and has the same result on every machine. 0: what it
  /// thinks fit.
  std::int64_t steps = 0;
  /// A search ends after this wall-clock time from the call on, in place of steps.
  std::optional<Seconds> time = {};
  std::stop_token stop = {};
  /// The search calls this, if set, with each better assignment that obeys the caps, and its objective.
  std::function<void(std::span<const std::int32_t>, double)> improved = {};
  std::uint64_t stream = 0;  ///< tells apart problems of one seed, as iterations
  /// Method::solve() leaves the bins in this order. None: the method's own.
  std::optional<BinOrder> bin_order = {};
};

/// An AssignmentSolution says which item is in which bin, and what that is worth.
struct AssignmentSolution : Solution {
  std::vector<std::int32_t> bin = {};  ///< per item; empty if infeasible
};

}  // namespace dflop
