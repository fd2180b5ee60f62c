// This header computes how much the bins of a plan may hold, and how much memory a plan needs, without a
// simulation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/scheduler.hpp"
#include "solver/bins.hpp"

namespace dflop {

/// A CapSet has caps and the weights that they refer to.
struct CapSet {
  std::vector<Cap> caps;
  std::vector<std::vector<double>> weights;
};

/// Makes the caps of a request other than memory: its token cap.
CapSet token_caps(const ScheduleRequest& request);

/// Makes the caps of a request: token_caps() and, if it has a memory limit, caps so that the activations of
/// the microbatches that a stage holds at once under the plan's order fit next to model state and workspace.
///
/// Activations are the sum over samples, within rounding to tp shares. The workspace grows with the largest
/// microbatch. So tokens of a bin and encoder tokens of a microbatch are also capped, at 1.5 x their mean or
/// the largest sample, and memory is reserved for that. A rank with several stages has one cap for all of
/// them, over the microbatches held by the fullest one. This cap is approximate, but never below what a
/// balanced assignment needs. An encoder's dp ranks hold equal parts of a microbatch plus up to one sequence,
/// because lower() divides it between sequences. The order is the one for equal steps. If an order depends on
/// durations, or the parts of split backwards keep recomputed activations, a batch may hold more:
/// memory_peak() says how much. On shared GPUs, memory is reserved for the other module with balanced
/// microbatches. `spare` has, for each pipeline rank, bytes to subtract from its cap; none: zero.
CapSet plan_caps(const ScheduleRequest& request, std::span<const Bytes> spare = {});

/// Returns whether the peak memory of a plan depends only on the order of its steps, and the order on no
/// duration.
bool memory_needs_no_run(const Plan& plan);

/// A MemoryPeak is the max memory of any GPU in one iteration.
struct MemoryPeak {
  Bytes bytes;
  int pipeline_rank = 0;  ///< of that GPU; on a shared GPU, the LLM's rank
  std::int32_t rank = 0;  ///< the first rank of its tp group
};

/// Returns the peak memory of one iteration in an order, equal to the result of a simulation: model state,
/// activations of the microbatches between their forward and the backward that frees them, and the current
/// step's workspace. A group runs its steps one after another, so their times do not matter. The two ranks of
/// a shared GPU need the sum of their peaks.
/// @pre the order is for the plan's shape; the assignment fits plan and batch
MemoryPeak memory_peak(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                       std::span<const Sample> batch, const Assignment& assignment,
                       const PipelineOrder& order);

/// Returns the peak memory of any rank in the plan's own order.
/// @pre memory_needs_no_run(plan)
Bytes peak_memory(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                  std::span<const Sample> batch, const Assignment& assignment);

}  // namespace dflop
