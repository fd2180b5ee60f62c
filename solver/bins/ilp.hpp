// This header solves the integer program of the published online scheduler with COIN-OR CBC.
#pragma once

#include <cstdint>
#include <span>

#include "solver/assignment_problem.hpp"

namespace dflop {

/// CBC is called for at most this many items x bins, with a step limit and with a time limit. Within the
/// default steps, one call takes up to about 0.3 s. Within a time limit, the first linear program must leave
/// time for more. Above these sizes CBC hardly ever improves on local search.
inline constexpr std::int64_t kNodeBudgetBinaries = kSmallCells;
inline constexpr std::int64_t kTimeLimitBinaries = 32768;

/// A call without a step limit takes this many branch-and-bound nodes.
inline constexpr std::int64_t kDefaultNodes = 200;

/// Minimizes C over binary x_ij, with sum_j x_ij = 1, sum_i x_ij >= 1 unless bins may be empty, all loads of
/// bins (of microbatches, if they share the encoder) at most C, and the caps. Starts from local_search() with
/// its default steps and never returns a worse assignment. Stops there if that meets lower_bound() or there
/// are too many binaries. Otherwise CBC gets the assignment as its incumbent, and the bound is the better of
/// both. With a time limit, local_search() gets a quarter of it before CBC. A step of `limits` is a
/// branch-and-bound node.
///
/// Bins are interchangeable, so item i (in decreasing size) is kept out of the bins after i, which loses no
/// partition. If the bins of a microbatch belong together, it is kept out of the microbatches after i and the
/// ranks after i; if caps cover consecutive microbatches, out of none.
///
/// CBC runs in a separate process (solver/bins/worker_process.hpp), because it may crash or miss its limit.
/// It is killed 0.2 s after the time limit. Without a time limit it is killed 30 s and 0.05 s per node after
/// the call, at most 600 s, which is a hundred times what calls take. The bound is CBC's, within its
/// tolerance. Status: optimal (the assignment meets the bound), node_limit, time_limit, heuristic (CBC ended,
/// but its best assignment breaks a cap by less than its tolerance and was not used), or fallback, with a
/// reason: CBC failed, and the local search's assignment is returned. If CBC is not called, the status is
/// local_search()'s.
/// @return no bins if none was found that obeys the caps.
AssignmentSolution solve_ilp(const BinProblem& problem, const SolveLimits& limits);

/// Returns whether `values` is a valid answer of CBC's process: a verdict (0 to 2), a finite bound, and
/// either a bin of the problem for each item, with no bin empty unless allowed, or no bins. A process whose
/// memory is corrupted may send anything.
bool is_ilp_answer(const BinProblem& problem, std::span<const double> values);

}  // namespace dflop
