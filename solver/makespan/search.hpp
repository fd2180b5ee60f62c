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
  /// The search calls this every few batches. It returns the used fraction of a budget other than steps; the
  /// search ends at 1. May be empty.
  std::function<double()> used = {};
  double enough_s = 0;  ///< the search need not go below this value
  /// The search calls this with each better assignment.
  std::function<void(std::span<const std::int32_t>, double)> improved = {};
};

/// Reduces the makespan of an assignment that obeys the caps, in place. The gradient of the slowest group's
/// makespan gives for each change the max possible reduction. Changes that this does not rule out are
/// evaluated 16 at a time, and the best is applied. Changes are: two bins exchange up to two items for up to
/// one, or all items; two microbatches swap positions, or one moves to another position.
///
/// A makespan is a maximum over paths, and if several are nearly critical, hardly any change shortens all of
/// them. So the search begins with a smooth makespan, which is also convex but whose gradient includes all
/// such paths, and approaches the true makespan as its budget is used up. Then, when nothing has helped for
/// long, it restarts from the best assignment with some items exchanged at random.
/// @return the makespan, in seconds
double makespan_search(const AssignmentProblem& problem, const MakespanKernel& kernel, Random& random,
                       const SearchControl& control, std::vector<std::int32_t>& bin);

/// Finds an assignment on one replica that represents all. It groups similar items into cells whose size is
/// the number of replicas or a multiple of it, assigns the mean of each cell as one item, and then gives each
/// replica its part of each cell. So the replicas are similar, and the search is smaller by the number of
/// items in a cell.
/// @return the bin of each item; empty if the parts do not obey the caps or leave a bin empty
std::vector<std::int32_t> mean_replica_start(const AssignmentProblem& problem, Random& random,
                                             const SearchControl& control);

}  // namespace dflop
