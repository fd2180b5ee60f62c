// ExpectedPlanner is the data-aware planner: it searches the objective of the published parallelism optimizer
// exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// Returns the mean over `items` of T(d) = (N_mb + E_pp + L_pp - 1) * max(E_dur(d), L_dur(d)) for a
/// disaggregated plan, where E_dur(d) is the forward and backward time on the slowest encoder stage of a
/// microbatch filled with copies of d, that is of share_of_batch(d, gbs, N_mb * E_dp), and L_dur(d) the same
/// for the LLM with N_mb * L_dp (DFLOP, section on the data-aware 3D parallelism optimizer).
Seconds published_objective(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                            std::span<const Sample> items);

/// A ExpectedPlanner finds tp, pp and dp of encoder and LLM and the number of microbatches that minimise
/// published_objective() over all configurations where the two modules use all GPUs, tp divides the GPUs of a
/// node, no stage is without layers, and the global batch has a sample for every microbatch of every LLM dp
/// rank. Ties go to the first in the order encoder tp, pp, dp, LLM tp, pp, dp, microbatches.
/// PlanResult::objective is the objective, over planning_items().
///
/// The search is exact for cost models whose durations do not fall when there is more work or a stage holds
/// more: it bounds many numbers of microbatches, the stages of a pipeline, and many items at once. Where
/// CostModel::convex_floor() is the duration itself, the mean item bounds all items (Jensen), and few
/// configurations need more; elsewhere the smallest of several items stands for them, which takes longer.
///
/// It differs from the published Algorithm 1. The mean over items of T is taken, not T at the mean item. The
/// smallest objective wins, whatever the order of enumeration. Durations come from the cost model at each
/// item's own shape, and are those of the slowest stage. Memory is that of the packed microbatches:
/// configurations are taken in the order of the objective, and the first wins whose peak fits in every
/// iteration of the request, both with random and with LPT microbatches. A configuration that does not fit
/// also rules out those that differ only in having fewer, and so larger, microbatches; if the one with the
/// most microbatches does not fit either, all of them.
class ExpectedPlanner final : public Planner {
 public:
  std::string_view name() const override { return "dflop-expected"; }

  /// @throws Error (usage) for orders of several chunks; Error (input) unless there are profile samples, at
  /// least one batch, and gbs samples in each batch.
  PlanResult plan(const PlanRequest& request) const override;
};

/// Returns the profile samples over which the objective is a mean: all, or 256 at equal distances, from the
/// largest to the smallest (encoder and LLM tokens, each in parts of its sum).
std::vector<Sample> planning_items(std::span<const Sample> profile);

}  // namespace dflop
