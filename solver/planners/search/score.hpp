// How a plan does when it is run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/scheduler.hpp"

namespace dflop {

/// The first iterations of a request under one plan and scheduler.
struct PlanScore {
  std::vector<Seconds> iterations;
  bool fits = true;  ///< else the run ended with the first iteration that needs too much memory
  Bytes peak_memory;
  RankShares total;  ///< summed over the iterations

  RankShares mean() const;
};

/// Schedules and simulates iterations until there are `iterations` of them; `within_memory` has the scheduler
/// keep to the memory. A score that does not fit stays as it is.
void extend_score(PlanScore& score, const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                  std::size_t iterations, bool within_memory = false);

/// About how many instructions extend_score() simulates for one iteration.
std::int64_t instructions_of(const Plan& plan);

}  // namespace dflop
