// A PlanScore has the results of scheduling and running a plan's iterations, as far as they have been run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/scheduler.hpp"

namespace dflop {

/// A PlanScore has the first iterations of a request under one plan and scheduler.
struct PlanScore {
  std::vector<Seconds> iterations;
  bool fits = true;  ///< false: the run ended with the first iteration that needs too much memory
  Bytes peak_memory;
  RankShares total;  ///< summed over the iterations

  RankShares mean() const { return total / std::max<double>(1, static_cast<double>(iterations.size())); }
};

/// Schedules and simulates iterations until there are `iterations` of them. A score that does not fit is left
/// unchanged.
void extend_score(PlanScore& score, const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                  std::size_t iterations, const ScheduleLimits& limits = {});

/// Above this number of GPUs every instruction takes longer, because reductions are larger. A search and the
/// races of its seeds then have smaller budgets, so that it ends in about twenty seconds.
inline constexpr std::int64_t kManyGpus = 128;

/// Returns how many instructions a whole search may simulate. A time limit replaces the default budget.
std::int64_t search_budget(const PlanRequest& request);

/// Returns about how many instructions extend_score() simulates for one iteration.
std::int64_t instructions_of(const Plan& plan);

/// Returns about how many instructions are added by reducing gradients in buckets.
std::int64_t instructions_of_buckets(const Plan& plan, const ModelSpec& model);

}  // namespace dflop
