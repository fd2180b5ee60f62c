// An AssignmentProblem has items to put into the bins of a pipeline, so that the largest load or the makespan
// is minimal.
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

/// An AssignmentProblem has items, bins and an objective: the makespan of `pipeline` if there is one,
/// otherwise the largest load of `bins`.
struct AssignmentProblem {
  BinProblem bins;
  const LoadPipeline* pipeline = nullptr;  ///< has bins.dp replicas and bins.microbatches() microbatches
  Features features = {};                  ///< values per item that the pipeline's loads sum up (Load::mix)
  /// These bounds of the pipeline are shared by the problems of many batches; may be null.
  MakespanBounds* bounds = nullptr;

  /// Returns the value of an assignment, in seconds. Caps are ignored. `bin` has one bin per item.
  double objective(std::span<const std::int32_t> bin) const {
    return pipeline == nullptr ? largest_load(bins, bin)
                               : makespan(*pipeline, load_table(*pipeline, features, bin));
  }
};

/// SolveLimits say when a search for an assignment ends. They also have its random seed, the order of the
/// bins, and a callback for improvements.
struct SolveLimits {
  std::uint64_t seed = 0;
  /// A search ends after this many of its own steps, which gives the same result on every machine. 0: the
  /// search chooses the number.
  std::int64_t steps = 0;
  /// A search ends this long after the call, in wall-clock time, instead of after a number of steps.
  std::optional<Seconds> time = {};
  std::stop_token stop = {};
  /// If set, the search calls this with each better assignment that obeys the caps, and its objective.
  std::function<void(std::span<const std::int32_t>, double)> improved = {};
  std::uint64_t stream = 0;  ///< distinguishes problems with the same seed, such as iterations
  /// Method::solve() leaves the bins in this order, but bins that were searched for a makespan stay as found.
  /// None: the method's own order.
  std::optional<BinOrder> bin_order = {};
};

/// An AssignmentSolution has the bin of each item, and the value of this assignment.
struct AssignmentSolution : Solution {
  std::vector<std::int32_t> bin = {};  ///< per item; empty if infeasible
};

}  // namespace dflop
