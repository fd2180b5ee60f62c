// The baselines have one tp, pp and dp for the whole model, each at its best.
#pragma once

#include <utility>

#include "core/iteration/planner.hpp"
#include "solver/planners/trials/candidates.hpp"

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

/// A UniformPlanner tries all uniform configurations: every tp that divides the GPUs of a node, every pp and
/// dp with tp * pp * dp = all GPUs, every count of microbatches that gives all of them equally many samples.
/// Where dp does not divide the global batch the counts of samples differ by one, and of the counts of
/// microbatches with the same samples per microbatch the largest is tried. They run in 1f1b; parallelism and
/// microbatches of the 64 that are fastest on the first iteration are then tried in the other order that
/// Megatron-LM has, interleaved with 2 or 4 chunks a rank, whose layers are cut into pp * chunks stages and
/// whose microbatches are multiples of pp. Orders that are asked for take the place of these. Recomputation,
/// placement and gradient buckets are chosen, and the best is found, as solver/planners/trials/candidates.hpp
/// says.
class UniformPlanner final : public Planner {
 public:
  /// Without a filter it tries all.
  explicit UniformPlanner(UniformSplit split, CandidateFilter filter = {})
      : split_(split), filter_(std::move(filter)) {}

  std::string_view name() const override { return split_ == UniformSplit::by_count ? "pytorch" : "megatron"; }

  /// @throws Error (input) unless there is at least one batch and each has gbs samples.
  PlanResult plan(const PlanRequest& request) const override;

 private:
  UniformSplit split_;
  CandidateFilter filter_;
};

/// A HandSetPlanner, "megatron-default", is what papers set by hand for a baseline: one sample in each
/// microbatch, the encoder alone on the first stage or with as many LLM layers as the others have, and the
/// smallest replica (tp * pp) that fits; of several as small the fastest. The order is that of the options,
/// recomputation is full and gradients are reduced in buckets unless the request fixes them.
class HandSetPlanner final : public Planner {
 public:
  /// Without a filter it tries all.
  explicit HandSetPlanner(CandidateFilter filter = {}) : filter_(std::move(filter)) {}

  std::string_view name() const override { return "megatron-default"; }

  /// @throws Error (input) unless there is at least one batch and each has gbs samples.
  PlanResult plan(const PlanRequest& request) const override;

 private:
  CandidateFilter filter_;
};

/// Returns all candidates of a split in the first order that is open, by tp, pp, microbatches, layers.
std::vector<Plan> uniform_candidates(const PlanRequest& request, UniformSplit split);

}  // namespace dflop
