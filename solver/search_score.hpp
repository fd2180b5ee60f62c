// How a plan does when it is run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/planner.hpp"
#include "core/scheduler.hpp"

namespace dflop {

/// The first iterations of a request under one plan and scheduler.
struct PlanScore {
  std::vector<Seconds> iterations;
  bool fits = true;  ///< else the run ended with the first iteration that needs too much memory
  Bytes peak_memory;
  RankedPlan shares;  ///< only the four shares of the mean iteration
};

/// Schedules and simulates the first `iterations` iterations; `within_memory` has the scheduler keep to it.
PlanScore score_plan(const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                     std::size_t iterations, bool within_memory = false);

/// A plan's objective and shares over all iterations, if it fits; its bound is left to the caller.
std::optional<RankedPlan> rank_plan(const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                                    bool within_memory);

/// About how many instructions score_plan() simulates for one iteration.
std::int64_t instructions_of(const Plan& plan);

}  // namespace dflop
