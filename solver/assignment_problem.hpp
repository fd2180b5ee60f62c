// An AssignmentProblem has items to put into the bins of a pipeline, so that the largest load or the makespan
// is minimal.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
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

/// A SearchWorth says how much work a search is worth that has no limit of its own. Work is counted in steps
/// and nodes, never measured, so that the same problem has the same result on every machine.
struct SearchWorth {
  /// The search ends when its value exceeds its bound by at most this fraction.
  double gap = 0;
  /// The search takes as many steps or nodes as a slow machine takes in this fraction of the iteration's
  /// predicted time or, if that is less, in the time by which the iteration can become shorter at most. It
  /// never takes more than its default number.
  double part = 1;
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
  /// Only a search without a number of steps and without a time limit reads this. None: it takes its default
  /// number of steps, and goes on until its bound proves the assignment optimal.
  std::optional<SearchWorth> worth = {};

  /// Returns the max relative gap to the bound with which the search ends.
  double enough_gap() const { return worth && steps == 0 && !time ? worth->gap : 0; }
  /// Returns how much time a search is worth on a slow machine: its part of an iteration of `iteration_s`,
  /// and not more than `gain_s`, by which it can shorten the iteration at most.
  double worth_s(double iteration_s, double gain_s) const {
    return worth ? std::min(worth->part * iteration_s, gain_s) : std::numeric_limits<double>::infinity();
  }
  /// Returns the number of steps of a search: `steps` if that is set, or otherwise as many as take `most_s`,
  /// if one takes `step_s`, and at most `by_default`.
  std::int64_t steps_or(std::int64_t by_default, double most_s, double step_s) const {
    if (steps > 0) return steps;
    const double within = most_s / step_s;
    return !time && within < static_cast<double>(by_default) ? static_cast<std::int64_t>(within) : by_default;
  }
};

/// An AssignmentSolution has the bin of each item, and the value of this assignment.
struct AssignmentSolution : Solution {
  std::vector<std::int32_t> bin = {};  ///< per item; empty if infeasible
};

}  // namespace dflop
