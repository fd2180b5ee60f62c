// ExpectedPlanner is the data-aware planner: it searches the objective of the published parallelism optimizer
// exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// An ExpectedPlanner finds tp, pp and dp of encoder and LLM and the number of microbatches that minimize the
/// mean over planning_items() of T(d) = (N_mb + E_pp + L_pp - 1) * max(E_dur(d), L_dur(d)). E_dur(d) is the
/// forward and backward time on the slowest encoder stage of a microbatch filled with copies of d, which is
/// share_of_batch(d, gbs, N_mb * E_dp). L_dur(d) is the same for the LLM with N_mb * L_dp (DFLOP, section on
/// the data-aware 3D parallelism optimizer). It considers all configurations in which the two modules use all
/// GPUs, tp divides the GPUs of a node, every stage has layers, and the global batch has a sample for every
/// microbatch of every LLM dp rank. Ties go to the first in the order encoder tp, pp, dp, LLM tp, pp, dp,
/// microbatches. PlanResult::objective is this mean.
///
/// The search is exact for cost models whose durations do not fall when there is more work or a stage holds
/// more. It bounds many numbers of microbatches, the stages of a pipeline, and many items at once. If
/// CostModel::convex_floor() equals the duration, the mean item bounds all items (Jensen), and few
/// configurations need more work. Otherwise the smallest of several items represents them, which takes
/// longer.
///
/// It differs from the published Algorithm 1. It takes the mean of T over items instead of T at the mean
/// item. The smallest objective wins, whatever the order of enumeration. Durations come from the cost model
/// at each item's own shape, for the slowest stage. Memory is that of the packed microbatches: configurations
/// are tried in order of the objective, and the first wins whose peak fits in every iteration of the request,
/// both with random and with LPT microbatches. A configuration that does not fit also rules out those that
/// differ only in having fewer, and so larger, microbatches. If the configuration with the most microbatches
/// does not fit, all of them are ruled out.
class ExpectedPlanner final : public Planner {
 public:
  std::string_view name() const override { return "dflop-expected"; }

  /// @throws Error (usage) for orders of several chunks; Error (input) unless there are profile samples, at
  /// least one batch, and gbs samples in each batch.
  PlanResult plan(const PlanRequest& request) const override;
};

/// Returns the profile samples over which the objective is averaged: all of them, or 256 evenly spaced from
/// the largest to the smallest (by encoder and LLM tokens, each as a fraction of its sum).
std::vector<Sample> planning_items(std::span<const Sample> profile);

}  // namespace dflop
