// A PlanScore is what a plan comes to when its iterations are scheduled and run, as far as they have been.
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
  bool fits = true;  ///< else the run ended with the first iteration that needs too much memory
  Bytes peak_memory;
  RankShares total;  ///< summed over the iterations

  RankShares mean() const { return total / std::max<double>(1, static_cast<double>(iterations.size())); }
};

/// Schedules and simulates iterations until there are `iterations` of them. A score that does not fit stays
/// as it is.
void extend_score(PlanScore& score, const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                  std::size_t iterations, const ScheduleLimits& limits = {});

/// On more GPUs than these every instruction takes longer, as reductions are larger; a search and the races
/// of its seeds then have smaller budgets, so that it ends in some twenty seconds.
inline constexpr std::int64_t kManyGpus = 128;

/// Returns how many instructions a whole search may simulate. A time limit takes the place of a budget that
/// was not asked for.
std::int64_t search_budget(const PlanRequest& request);

/// Returns about how many instructions extend_score() simulates for one iteration.
std::int64_t instructions_of(const Plan& plan);

/// Returns about how many instructions the reduction of gradients in buckets adds to that.
std::int64_t instructions_of_buckets(const Plan& plan, const ModelSpec& model);

}  // namespace dflop
