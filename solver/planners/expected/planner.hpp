// ExpectedPlanner is the data-aware planner: it finds the exact minimum of the published parallelism
// optimizer's objective.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// An ExpectedPlanner finds the tp, pp and dp of encoder and LLM and the number of microbatches N_mb that
/// minimize the mean of T(d) over the items d of planning_items(), with
///   T(d) = (N_mb + E_pp + L_pp - 1) * max(E_dur(d), L_dur(d)).
/// E_dur(d) is the time of forward and backward, on the slowest encoder stage, of a microbatch filled with
/// copies of d: share_of_batch(d, gbs, N_mb * E_dp). L_dur(d) is the same for the LLM with N_mb * L_dp
/// (DFLOP, section on the data-aware 3D parallelism optimizer). PlanResult::objective is this mean.
///
/// It considers all configurations in which the two modules use all GPUs, tp divides the GPUs of a node,
/// every stage has layers, and the global batch has a sample for every microbatch of every LLM dp rank. Ties
/// go to the first configuration in the order of encoder tp, pp, dp, LLM tp, pp, dp, microbatches.
///
/// The search is exact for cost models whose durations do not fall when there is more work or a stage holds
/// more. One bound covers many numbers of microbatches, all stages of a pipeline, and many items. If
/// CostModel::convex_floor() equals the duration, the mean of the items gives this bound (Jensen's
/// inequality), and few configurations need a closer look. Otherwise, the smallest counts of several items
/// represent them, which makes the search slower.
///
/// It differs from the published Algorithm 1. It takes the mean of T over items instead of T at the mean
/// item. The smallest objective wins, whatever the order of enumeration. Durations come from the cost model
/// for each item's own work, on the slowest stage. Memory is the peak in trial iterations: configurations are
/// tried in order of the objective, and the first one wins that fits in every iteration of the request, both
/// with random and with LPT microbatches. A configuration that does not fit also rules out the configurations
/// that differ only in having fewer, and so larger, microbatches. If it does not fit with the max number of
/// microbatches, all numbers are ruled out.
class ExpectedPlanner final : public Planner {
 public:
  std::string_view name() const override { return "dflop-expected"; }

  /// @throws Error (usage) for orders of several chunks or that spread the encoder; Error (input) unless
  /// there are profile samples, at least one batch, and gbs samples in each batch.
  PlanResult plan(const PlanRequest& request) const override;
};

/// Returns the profile samples over which the objective is averaged: all of them, or 256 evenly spaced from
/// the largest to the smallest (by encoder and LLM tokens, each as a fraction of its sum).
std::vector<Sample> planning_items(std::span<const Sample> profile);

}  // namespace dflop
