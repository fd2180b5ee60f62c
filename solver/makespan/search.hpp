// Local search for the smallest makespan of a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/support/random.hpp"
#include "solver/assignment_solver.hpp"
#include "solver/makespan/kernel.hpp"

namespace dflop {

/// When a search ends and whom it tells.
struct SearchControl {
  std::int64_t steps = 0;  ///< batches of candidates at most
  /// Asked every few batches: which part of the budget is used, beside steps; it ends at 1. May be empty.
  std::function<double()> used = {};
  double enough_s = 0;  ///< no need to go below
  /// Called with each better assignment.
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

}  // namespace dflop
