// The baseline planners use one tp, pp and dp for the whole model. Each finds its best configuration.
#pragma once

#include <utility>

#include "core/iteration/planner.hpp"
#include "solver/planners/trials/candidates.hpp"

namespace dflop {

/// A UniformSplit says how a uniform pipeline is cut into stages.
enum class UniformSplit : std::uint8_t {
  /// "pytorch": encoder and LLM layers are one list, cut into stages with equal numbers of layers.
  by_count,
  /// "megatron": the first stage has the encoder and some LLM layers; the other LLM layers are cut evenly.
  /// The planner tries 1, 3/4, 1/2, 1/4 and 0 of an even share of LLM layers on the first stage
  /// (Megatron-LM's --decoder-first-pipeline-num-layers).
  encoder_first,
};

/// A UniformPlanner tries all uniform configurations: every tp that divides the GPUs of a node, every pp and
/// dp with tp * pp * dp = all GPUs, and every number of microbatches that gives all of them equally many
/// samples. If dp does not divide the global batch, the numbers of samples differ by one; then, of the
/// numbers of microbatches with the same samples per microbatch, only the largest is tried.
///
/// The configurations run in 1f1b. The parallelism and microbatches of the 64 fastest on the first iteration
/// are then tried in Megatron-LM's other order, interleaved: with 2 or 4 chunks per rank, layers cut into pp
/// * chunks stages, and numbers of microbatches that the system can interleave: in PyTorch, multiples of
/// max(1, microbatches / pp), and in Megatron-LM, at least pp. If the request has orders, they replace these
/// two. A CandidateRace (solver/planners/trials/candidates.hpp) chooses recomputation, placement, gradient
/// buckets and the best plan.
class UniformPlanner final : public Planner {
 public:
  /// Without a filter all candidates are tried.
  explicit UniformPlanner(UniformSplit split, CandidateFilter filter = {})
      : split_(split), filter_(std::move(filter)) {}

  std::string_view name() const override { return split_ == UniformSplit::by_count ? "pytorch" : "megatron"; }

  /// @throws Error (input) unless there is at least one batch and each has gbs samples.
  PlanResult plan(const PlanRequest& request) const override;

 private:
  UniformSplit split_;
  CandidateFilter filter_;
};

/// A HandSetPlanner, "megatron-default", follows the rules by which papers configure a baseline by hand. Each
/// microbatch has one sample. The encoder is on the first stage, which has either no LLM layers or as many as
/// the other stages. The replica (tp * pp) is the smallest that fits; among equally small ones, the fastest
/// wins. The order comes from the options. Unless the request fixes them, recomputation is full and gradients
/// are reduced in buckets.
class HandSetPlanner final : public Planner {
 public:
  /// Without a filter all candidates are tried.
  explicit HandSetPlanner(CandidateFilter filter = {}) : filter_(std::move(filter)) {}

  std::string_view name() const override { return "megatron-default"; }

  /// @throws Error (input) unless there is at least one batch and each has gbs samples.
  PlanResult plan(const PlanRequest& request) const override;

 private:
  CandidateFilter filter_;
};

/// Returns all candidates of a split in the first permitted order, sorted by tp, pp, microbatches, layers.
std::vector<Plan> uniform_candidates(const PlanRequest& request, UniformSplit split);

}  // namespace dflop
