// Local search minimizes the makespan of a pipeline. This header also finds its starting assignment.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/support/random.hpp"
#include "solver/assignment_problem.hpp"
#include "solver/makespan/kernel.hpp"

namespace dflop {

/// A SearchControl says when a search ends, and has its callbacks.
struct SearchControl {
  std::int64_t steps = 0;  ///< max batches of candidates
  /// The search calls this every few batches. It returns how much of a budget other than steps is used, as a
  /// fraction; at 1 the search ends. May be empty.
  std::function<double()> used = {};
  double enough_s = 0;  ///< the search need not go below this value
  /// The search calls this with each better assignment.
  std::function<void(std::span<const std::int32_t>, double)> improved = {};
};

/// Reduces the makespan of the assignment `bin`, which must obey the caps. A change either exchanges items
/// between two bins (up to two items for up to one, or all items), swaps two microbatches, or moves one
/// microbatch to a different position. For each change, the gradient of the slowest group's makespan gives
/// the max possible reduction. Changes that this does not rule out are evaluated 16 at a time, and the best
/// is applied.
///
/// A makespan is a maximum over paths, and if several are nearly critical, hardly any change shortens all of
/// them. So the search begins with a smooth makespan, which is also convex but whose gradient includes all
/// such paths. It approaches the true makespan as the budget is used up. If nothing has helped for long after
/// that, it restarts from the best assignment with some items exchanged at random.
/// @return the makespan, in seconds
double makespan_search(const AssignmentProblem& problem, const MakespanKernel& kernel, Random& random,
                       const SearchControl& control, std::vector<std::int32_t>& bin);

/// Finds an assignment by a search for one replica that represents all. It groups similar items into cells
/// whose size is the number of replicas or a multiple of it. The search assigns the mean of each cell as one
/// item. Then each replica gets an equal part of each cell. So the replicas are similar, and the search has
/// fewer items.
/// @return the bin of each item; empty if the parts do not obey the caps or leave a bin empty
std::vector<std::int32_t> mean_replica_start(const AssignmentProblem& problem, Random& random,
                                             const SearchControl& control);

}  // namespace dflop
