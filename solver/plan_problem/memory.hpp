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

/// Makes the caps of a request that do not come from memory: its token cap.
CapSet token_caps(const ScheduleRequest& request);

/// Makes the caps of a request: token_caps() and, if it has a memory limit, memory caps. With these, the
/// activations of the microbatches that a stage holds at once, in the plan's order, fit in addition to model
/// state and workspace.
///
/// The activations of a bin are the sum over its samples, except for rounding to tp shares. The workspace
/// grows with the largest microbatch. So the tokens of a bin and the encoder tokens of a microbatch are also
/// capped, at 1.5 times their mean or the largest sample, and memory for a workspace of this size is
/// reserved.
///
/// A rank with several stages has one cap for all of them, over the microbatches held by the fullest one.
/// This cap is approximate, but never below what a balanced assignment needs. The dp ranks of an encoder with
/// separate ranks hold equal parts of a microbatch plus up to one sequence, because lower() divides it
/// between sequences. On shared GPUs, memory is reserved for the other module with balanced microbatches.
///
/// The caps assume the order for equal steps. A batch may hold more if its order depends on durations, or if
/// the parts of split backwards keep recomputed activations: memory_peak() says how much. `spare` has, for
/// each pipeline rank, the bytes to subtract from its cap; empty: zero for all.
CapSet plan_caps(const ScheduleRequest& request, std::span<const Bytes> spare = {});

/// Returns whether the peak memory of a plan depends only on the order of its steps, and this order does not
/// depend on durations.
bool memory_needs_no_run(const Plan& plan);

/// A MemoryPeak is the max memory of any GPU in one iteration.
struct MemoryPeak {
  Bytes bytes;
  int pipeline_rank = 0;  ///< pipeline rank of that GPU; on a shared GPU, the LLM's
  std::int32_t rank = 0;  ///< the first rank of its tp group
};

/// Returns the peak memory of one iteration whose steps run in `order`. It equals the peak of a simulation:
/// model state, the activations of microbatches from their forward to the backward that frees them, and the
/// current step's workspace. A group runs its steps one after another, so their durations do not matter. The
/// two ranks of a shared GPU need the sum of their peaks.
/// @pre the order is for the plan's shape; the assignment fits plan and batch
MemoryPeak memory_peak(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                       std::span<const Sample> batch, const Assignment& assignment,
                       const PipelineOrder& order);

/// Returns the peak memory of any rank in the plan's own order.
/// @pre memory_needs_no_run(plan)
Bytes peak_memory(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                  std::span<const Sample> batch, const Assignment& assignment);

}  // namespace dflop
