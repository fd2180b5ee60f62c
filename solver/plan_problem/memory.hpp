// Peak memory of a plan without running it.
#pragma once

#include <span>

#include "core/iteration/planner.hpp"

namespace dflop {

/// Whether the peak memory of a plan depends on the order of its steps alone, and the order on no duration.
bool memory_needs_no_run(const Plan& plan);

/// The most memory of any rank in one iteration, as a run of its program finds it: model state, the
/// activations of the microbatches between their forward and the backward that frees them, and what the step
/// at hand needs. A group runs its steps one after another, so when it runs them does not matter.
/// @pre memory_needs_no_run(plan); the plan is disaggregated; the assignment fits plan and batch
Bytes peak_memory(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                  std::span<const Sample> batch, const Assignment& assignment);

}  // namespace dflop
