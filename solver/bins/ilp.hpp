// This header solves the integer program of the published online scheduler with COIN-OR CBC.
#pragma once

#include <cstdint>
#include <span>

#include "solver/assignment_problem.hpp"

namespace dflop {

/// CBC is called only if items times bins is at most kNodeBudgetBinaries or, with a time limit,
/// kTimeLimitBinaries. With the default number of steps, a call then takes up to about 0.3 s. With a time
/// limit, the first linear program must leave time for the search. Above these sizes CBC hardly ever improves
/// on local search.
inline constexpr std::int64_t kNodeBudgetBinaries = kSmallCells;
inline constexpr std::int64_t kTimeLimitBinaries = 32768;

/// A call without a step limit takes this many branch-and-bound nodes.
inline constexpr std::int64_t kDefaultNodes = 200;

/// Minimizes C over binary x_ij (item i is in bin j), subject to: sum_j x_ij = 1; sum_i x_ij >= 1 unless bins
/// may be empty; all loads of bins (of microbatches, if they share the encoder) are at most C; and the caps.
///
/// First runs local_search() with its default steps or, with a time limit, for a quarter of the limit. If its
/// assignment meets lower_bound(), or if there are too many binaries, returns it. Otherwise CBC gets it as
/// its incumbent. So the result is never worse than local_search()'s. The bound is the larger of
/// lower_bound() and CBC's bound. A step of `limits` is a branch-and-bound node.
///
/// Bins are interchangeable, so item i (in decreasing size) may only be in the bins up to i, which loses no
/// partition. If the bins of a microbatch belong together, item i may only be in the microbatches up to i and
/// on the ranks up to i. If caps cover consecutive microbatches, it may be in any bin.
///
/// CBC runs in a separate process (solver/bins/worker_process.hpp), because it may crash or miss its limit.
/// It is killed 0.2 s after the time limit. Without a time limit it is killed after 30 s plus 0.05 s per
/// node, at most 600 s: a hundred times the usual time of a call. CBC's bound holds within its tolerance.
///
/// The status is optimal if the assignment meets the bound, node_limit or time_limit if a limit ended CBC,
/// and heuristic if CBC's best assignment was not used because it breaks a cap by less than CBC's tolerance.
/// It is fallback, with a reason, if CBC failed; then the result is local_search()'s. If CBC is not called,
/// the status is local_search()'s.
/// @return an assignment; without bins if none was found that obeys the caps.
AssignmentSolution solve_ilp(const BinProblem& problem, const SolveLimits& limits);

/// Returns whether `values` is a valid answer of CBC's process: a verdict (0 to 2), a finite bound, and
/// either one of the problem's bins for each item, with no bin empty unless allowed, or no bins. This must be
/// checked, because a process whose memory is corrupted may send anything.
bool is_ilp_answer(const BinProblem& problem, std::span<const double> values);

}  // namespace dflop
