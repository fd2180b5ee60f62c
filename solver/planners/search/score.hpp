// A PlanScore has the results of a plan's iterations that have been scheduled and simulated so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/scheduler.hpp"

namespace dflop {

/// A PlanScore has the results of a request's first iterations with one plan and scheduler.
struct PlanScore {
  std::vector<Seconds> iterations;
  bool fits = true;  ///< false: the run ended with the first iteration that needs too much memory
  Bytes peak_memory;
  RankShares total;  ///< summed over the iterations

  RankShares mean() const { return total / std::max<double>(1, static_cast<double>(iterations.size())); }
};

/// Schedules and simulates further iterations until the score has `iterations` of them. If the score already
/// says that the plan does not fit, leaves it unchanged.
void extend_score(PlanScore& score, const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                  std::size_t iterations, const ScheduleLimits& limits = {});

/// Above this number of GPUs, simulating an instruction takes longer, because reductions are larger. So a
/// search and the races of its seeds then have smaller budgets, and the search ends in about twenty seconds.
inline constexpr std::int64_t kManyGpus = 128;

/// Returns the number of instructions that a whole search may simulate. A time limit replaces the default
/// budget.
std::int64_t search_budget(const PlanRequest& request);

/// Returns about the number of instructions that extend_score() simulates for one iteration.
std::int64_t instructions_of(const Plan& plan);

/// Returns about the number of instructions that gradient reduction in buckets adds.
std::int64_t instructions_of_buckets(const Plan& plan, const ModelSpec& model);

}  // namespace dflop
