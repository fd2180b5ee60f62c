// COIN-OR CBC solves the integer program of the published online scheduler.
#pragma once

#include <cstdint>
#include <span>

#include "solver/assignment_problem.hpp"

namespace dflop {

/// CBC is asked to solve at most so many items x bins, with steps and with a time limit. Within the default
/// steps one call then takes up to about 0.3 s; within a time limit the first linear program alone must leave
/// time for anything else. Local search is hardly ever improved above either.
inline constexpr std::int64_t kNodeBudgetBinaries = kSmallCells;
inline constexpr std::int64_t kTimeLimitBinaries = 32768;

/// A call without steps takes so many branch-and-bound nodes.
inline constexpr std::int64_t kDefaultNodes = 200;

/// Minimises C over binary x_ij, with sum_j x_ij = 1, sum_i x_ij >= 1 unless bins may be empty, all loads of
/// bins (of microbatches, where they share the encoder) at most C, and the caps. Starts from local_search()
/// with that one's own number of steps, is never worse than it, and ends there where that meets lower_bound()
/// or there are too many binaries; else CBC gets its assignment as the incumbent, and the bound is the better
/// of both. With a time limit local_search() has a quarter of it before CBC. Bins are interchangeable, so
/// item i (by falling size) is kept out of the bins after i, which loses no partition; where the bins of a
/// microbatch belong together, out of the microbatches after i and the ranks after i; where caps look at
/// microbatches in a row, out of none. A step of `limits` is a branch-and-bound node.
///
/// CBC runs in a process of its own (solver/bins/worker_process.hpp): it may crash or miss its limit, and is
/// killed 0.2 s after it; without a time limit 30 s and 0.05 s per node after the call, at most 600 s, which
/// is a hundred times what they take. The bound is CBC's, to its tolerance. Status: optimal (the assignment
/// meets the bound), node_limit, time_limit, heuristic (CBC ended, but its best breaks a cap by less than its
/// tolerance and was not taken), or fallback, with a reason: CBC failed, and the local search's assignment
/// stays. Where CBC is not asked it is that of local_search().
/// @return no bins where none was found that obeys the caps.
AssignmentSolution solve_ilp(const BinProblem& problem, const SolveLimits& limits);

/// Returns true for what CBC's process may send: a verdict (0 to 2), a finite bound, and a bin of the problem
/// for each item, none left empty that must not be, or no bins. A process whose memory is corrupted may send
/// anything.
bool is_ilp_answer(const BinProblem& problem, std::span<const double> values);

}  // namespace dflop
