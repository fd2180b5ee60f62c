// The integer program of the published online scheduler, solved by COIN-OR CBC.
#pragma once

#include <cstdint>
#include <optional>

#include "solver/bins.hpp"

namespace dflop {

struct IlpLimits {
  /// Branch-and-bound nodes; the same answer on every run. Not used when there is a time limit.
  std::int64_t nodes = 0;
  /// Wall clock from the call on. CBC looks at it between nodes, which at the largest size overruns by 0.3 s.
  std::optional<Seconds> time;
};

/// Largest items x bins that CBC is asked to solve. Within the default node budget one call then takes up to
/// about 0.3 s; within a time limit the first linear program alone must leave time for anything else. LPT is
/// hardly ever improved above either.
inline constexpr std::int64_t kNodeBudgetBinaries = 512;
inline constexpr std::int64_t kTimeLimitBinaries = 32768;

/// min C over binary x_ij, with sum_j x_ij = 1, sum_i x_ij >= 1, and both loads of every bin at most C.
/// Starts from lpt() and is never worse; stops at once where that meets lower_bound(). Bins are
/// interchangeable, so item i (by falling size) is kept out of the bins after i, which loses no partition.
/// The bound is CBC's, to its tolerance. Status: optimal (proven), node_limit, time_limit, or fallback (the
/// model is too large or CBC failed).
BinSolution solve_ilp(const BinProblem& problem, const IlpLimits& limits);

}  // namespace dflop
