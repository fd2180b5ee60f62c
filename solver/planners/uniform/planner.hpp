// The baselines have one tp, pp and dp for the whole model, each at its best.
#pragma once

#include "core/iteration/planner.hpp"

namespace dflop {

/// A UniformSplit says how a uniform pipeline is cut into stages.
enum class UniformSplit : std::uint8_t {
  /// "pytorch": encoder and LLM layers are one list, cut into stages of equal counts.
  by_count,
  /// "megatron": the encoder is on the first stage, which keeps some of the LLM layers; the rest is cut
  /// evenly. The share of the first stage is tried at 1, 3/4, 1/2, 1/4 and 0 of the even one (Megatron-LM's
  /// --decoder-first-pipeline-num-layers).
  encoder_first,
};

/// A UniformPlanner searches all uniform configurations: every tp that divides the GPUs of a node, every pp
/// and dp with tp * pp * dp = all GPUs, every count of microbatches that gives all of them equally many
/// samples. Where dp does not divide the global batch the counts of samples differ by one, and of the counts
/// of microbatches with the same samples per microbatch the largest is tried; interleaved orders take
/// multiples of pp only. With several chunks a rank the layers are cut into pp * chunks stages. Each
/// candidate runs all iterations of the request with the microbatches of random_assignment(); one is feasible
/// if no rank's peak memory exceeds the GPU's in any iteration.
///
/// The plan is the first of those with the smallest mean makespan, which is PlanResult::objective. Candidates
/// are given up only when their makespans so far already sum to more than all of the best one's.
class UniformPlanner final : public Planner {
 public:
  explicit UniformPlanner(UniformSplit split) : split_(split) {}

  std::string_view name() const override { return split_ == UniformSplit::by_count ? "pytorch" : "megatron"; }

  /// @throws Error (input) unless there is at least one batch and each has gbs samples.
  PlanResult plan(const PlanRequest& request) const override;

 private:
  UniformSplit split_;
};

/// Returns all candidates of a split, in the order of tp, pp, split, microbatches.
std::vector<Plan> uniform_candidates(const PlanRequest& request, UniformSplit split);

}  // namespace dflop
