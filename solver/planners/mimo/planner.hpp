// MimoPlanner finds the best plan that Megatron-LM's MIMO can run with separate GPUs for encoder and LLM.
#pragma once

#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// A MimoPlanner, "megatron-mimo", tries the disaggregated plans that the non-colocated MIMO of Megatron-Core
/// and Megatron-Bridge can run (arXiv 2605.27678; megatron_mimo_config.py, bridge_communicator.py):
///   ranks         the encoder's first, then the LLM's; together all GPUs
///   tp            a power of two
///   dp            the dp of one module divides the dp of the other
///   pp            any, with layers cut evenly; the order is 1f1b, because interleaving rejects tensors of
///                 several shapes
///   microbatches  all have equally many samples, and each is divided evenly among the dp ranks of both
///                 modules, because MIMO divides samples by their number
///
/// There are thousands, and MIMO does not choose among them. The planner runs the 768 with the smallest
/// estimate (by_estimate()) in a CandidateRace, and 768 more as long as none fits. The race chooses
/// recomputation, placement, gradient buckets and the best plan, with random microbatches.
///
/// Left out: the leader of each replica that sends for all its ranks and then broadcasts (activations go from
/// rank to rank, or through a hub), the choice of a recomputation for the encoder by itself, cp and ep.
class MimoPlanner final : public Planner {
 public:
  std::string_view name() const override { return "megatron-mimo"; }

  /// @throws Error (usage) for orders of several chunks or that spread the encoder; Error (input) unless
  /// there is at least one batch and each has gbs samples.
  PlanResult plan(const PlanRequest& request) const override;
};

/// Returns all candidates, sorted by the GPUs, tp and pp of the encoder, then the LLM's, then microbatches.
std::vector<Plan> mimo_candidates(const PlanRequest& request);

/// Returns the candidates in increasing order of their estimate: (microbatches + stages - 1) times the time
/// of the slowest stage for a microbatch of mean samples of the first batch, without communication.
std::vector<Plan> by_estimate(const PlanRequest& request, std::vector<Plan> candidates);

}  // namespace dflop
