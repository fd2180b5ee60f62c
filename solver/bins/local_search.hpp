// Local search for the smallest largest load.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/assignment_solver.hpp"

namespace dflop {

/// Starts from lpt() and takes load off the fullest bin, step by step: by the best exchange or move of single
/// items with one of some bins, where none helps by exchanges of up to two items on each side, and where
/// those do not help either from a few random swaps of the best assignment so far; until lower_bound() is met
/// or `limits` end it. A step of `limits.steps` is one offer tried against sixteen others; without steps or
/// time there are two million, some milliseconds. Never worse than lpt(). `improved` gets each better
/// assignment.
/// @return no bins and status infeasible where no assignment was found that obeys the caps; that of
/// obey_caps() and status fallback where there are more than kMostCaps caps
/// (solver/bins/exchange_kernel.hpp).
BinSolution local_search(const BinProblem& problem, const SolveLimits& limits);

/// Some assignment that obeys the caps: lpt()'s, or one found by the same search on what bins hold of them;
/// empty where none was found within the limits. Windows of microbatches are filled evenly.
std::vector<std::int32_t> obey_caps(const BinProblem& problem, const SolveLimits& limits);

}  // namespace dflop
