// Local search for the smallest makespan of a pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "solver/assignment_solver.hpp"
#include "solver/makespan_kernel.hpp"

namespace dflop {

/// When a search ends and whom it tells.
struct SearchControl {
  std::int64_t steps = 0;  ///< batches of candidates at most
  /// Asked every few batches: which part of the budget is used; it ends at 1. Absent: that of the steps.
  std::function<double()> used = {};
  double enough_s = 0;  ///< no need to go below
  /// Called with each better assignment.
  std::function<void(std::span<const std::int32_t>, double)> improved = {};
};

/// Makes the makespan of an assignment that obeys the caps smaller, in place. It takes a longest path of the
/// slowest group, which says for each change of loads by how much the makespan falls at most; of the changes
/// that this does not rule out it evaluates 16 at once and applies the best. Changes are: two bins give each
/// other up to two items for up to one, or all; two microbatches change places, or one moves elsewhere. When
/// nothing helps for long it goes on from the best one with some items exchanged at random.
/// @return the makespan, in seconds
double makespan_search(const AssignmentProblem& problem, const MakespanKernel& kernel, std::uint64_t seed,
                       const SearchControl& control, std::vector<std::int32_t>& bin);

}  // namespace dflop
