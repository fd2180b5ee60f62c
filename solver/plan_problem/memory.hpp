// This header finds what the bins of a plan may hold, and what memory a plan needs, without running it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/scheduler.hpp"
#include "solver/bins.hpp"

namespace dflop {

/// A CapSet has caps with the weights that they refer to.
struct CapSet {
  std::vector<Cap> caps;
  std::vector<std::vector<double>> weights;
};

/// Makes the caps of a request that are not of memory: its token cap.
CapSet token_caps(const ScheduleRequest& request);

/// Makes the caps of a request: token_caps(); and where it names a memory, that the activations of the
/// microbatches which a stage holds at once under the plan's order fit beside model state and workspace.
///
/// Activations add up over samples to within rounding to tp shares. The workspace grows with the largest
/// microbatch, so tokens of a bin and encoder tokens of a microbatch are capped as well, at 1.5 x their mean
/// or the largest sample, and memory is kept free for that. A rank with several stages has one cap for all,
/// over the microbatches that the fullest of them holds, which is only near: it is never below what a
/// balanced assignment needs. An encoder's dp ranks hold equal parts of a microbatch and up to one sequence
/// more, as lower() cuts it. The order is that of equal steps; where an order depends on durations, or the
/// parts of split backwards keep what recomputation has brought back, a batch may hold more: memory_peak()
/// says how much. On shared GPUs, room is kept for what the other module needs with balanced microbatches.
/// `spare` has, for each pipeline rank, bytes by which its cap is lower than that; none: zero.
CapSet plan_caps(const ScheduleRequest& request, std::span<const Bytes> spare = {});

/// Returns whether the peak memory of a plan depends on the order of its steps alone, and the order on no
/// duration.
bool memory_needs_no_run(const Plan& plan);

/// A MemoryPeak is the most memory of any GPU in one iteration.
struct MemoryPeak {
  Bytes bytes;
  int pipeline_rank = 0;  ///< of that GPU; on a shared one, of the LLM's rank
  std::int32_t rank = 0;  ///< the first one of its tp group
};

/// Returns the peak memory of one iteration in an order, as a run of its program finds it: model state, the
/// activations of the microbatches between their forward and the backward that frees them, and what the step
/// at hand needs. A group runs its steps one after another, so when it runs them does not matter. The two
/// ranks of a shared GPU need the sum of their peaks.
/// @pre the order is for the plan's shape; the assignment fits plan and batch
MemoryPeak memory_peak(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                       std::span<const Sample> batch, const Assignment& assignment,
                       const PipelineOrder& order);

/// Returns the same in the plan's own order, of any rank.
/// @pre memory_needs_no_run(plan)
Bytes peak_memory(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                  std::span<const Sample> batch, const Assignment& assignment);

}  // namespace dflop
