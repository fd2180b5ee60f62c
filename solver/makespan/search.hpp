// Local search makes the makespan of a pipeline small, from a start that is found here too.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/support/random.hpp"
#include "solver/assignment_problem.hpp"
#include "solver/makespan/kernel.hpp"

namespace dflop {

/// SearchControl says when a search ends and whom it tells.
struct SearchControl {
  std::int64_t steps = 0;  ///< batches of candidates at most
  /// The search asks this every few batches: which part of the budget is used, beside steps. It ends at 1.
  /// May be empty.
  std::function<double()> used = {};
  double enough_s = 0;  ///< no need to go below
  /// The search calls this with each better assignment.
  std::function<void(std::span<const std::int32_t>, double)> improved = {};
};

/// Makes the makespan of an assignment that obeys the caps smaller, in place. The gradient of the slowest
/// group's makespan says for each change by how much that falls at most; of the changes that this does not
/// rule out, 16 are evaluated at once and the best is applied. Changes are: two bins give each other up to
/// two items for up to one, or all; two microbatches change places, or one moves elsewhere.
///
/// A makespan is a maximum over paths, and where several are nearly critical hardly any change makes all of
/// them shorter. So the search begins with a smooth makespan, which is convex as well but whose gradient sees
/// all such paths, and goes to the true one as its budget is used up. From then on, when nothing helps for
/// long, it goes on from the best one with some items exchanged at random.
/// @return the makespan, in seconds
double makespan_search(const AssignmentProblem& problem, const MakespanKernel& kernel, Random& random,
                       const SearchControl& control, std::vector<std::int32_t>& bin);

/// Finds an assignment on one replica that stands for all: like items are put together, as many as there are
/// replicas or a multiple, and what they are on average is assigned as one item; then each replica gets its
/// part of them. Replicas so become alike, and the search is as much smaller as there are items in a cell.
/// @return the bin of each item; empty where the parts do not obey the caps or leave a bin empty
std::vector<std::int32_t> mean_replica_start(const AssignmentProblem& problem, Random& random,
                                             const SearchControl& control);

}  // namespace dflop
