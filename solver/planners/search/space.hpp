// A SearchSpace has the plans among which the planner "search" looks for the best.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/cuts.hpp"
#include "solver/planners/trials/candidates.hpp"

namespace dflop {

/// A SearchShape says which GPUs a plan gives to what. Uniform: both modules are the same; colocated: the
/// encoder has the LLM's tp, pp 1 and dp llm.dp * llm.pp.
struct SearchShape {
  Layout layout = Layout::disaggregated;
  ModulePlan encoder;        ///< without layers
  ModulePlan llm;            ///< without layers
  double encoder_share = 0;  ///< of shared plans
};

/// A space of this kind has the shared plans of a request, or all others.
enum class SpacePart : std::uint8_t { unshared, shared };

/// Says whether the GPUs of a stage, counted from the first of the encoder, can hold it.
using StageFits = std::function<bool(int stage, const Stage& of)>;

/// A SearchVariant is what is left to choose of a shape with recomputation and microbatches beside the cut of
/// the layers.
struct SearchVariant {
  OrderKind order = OrderKind::one_f_one_b;
  int chunks = 1;
  RankOrder placement = RankOrder::stage_major;
};

/// A SearchSpace has every combination of
///   layout          disaggregated, uniform, colocated (with pp 2 or more)
///   tp              the divisors of a node's GPUs, for each module its own where they are apart
///   pp, dp          any that use all GPUs, with a layer of its own for each stage and dp <= gbs for the LLM;
///                   where dp, or tp and pp, are wished for, some GPUs may be left over
///   microbatches    1 to 8, then 10, 12, 14, 16, 20, ..., four an octave, up to a sample for each bin; for
///                   interleaved those that are multiples of pp
///   order           1f1b, zb-h1, zb-h2, eager-1f1b and, with two chunks for an LLM (or uniform) pipeline of
///   at
///                   least two ranks, interleaved and zb-v; on one rank of a uniform plan, where all are
///                   alike but for the memory of chunks, 1f1b and interleaved; gpipe only where it is asked
///                   for; encoder-in-bubbles for colocated plans alone
///   layers          every cut of the layers into stages of one layer at least
///   placement       stage-major; replica-major where the pipeline is more than one rank and a node more than
///                   one tp group
///   recomputation   none, selective, full
/// or, as SpacePart::shared, of shared plans: any two modules that each use as many GPUs, with an eighth to
/// seven eighths of each for the encoder. There are none where the cost model knows no shares, on GPUs of
/// several types, or where the request wants none.
///
/// Gradient buckets are the first that the request leaves open: a plan in buckets has no larger bound than
/// without, as reductions may be hidden, and the search tries the others on its best plans. ZeRO-1 and
/// sequence parallelism are the request's. An optimizer state that ZeRO-1 splits is never larger, nor its
/// step slower, so that nothing is lost by not trying it without.
class SearchSpace {
 public:
  explicit SearchSpace(const PlanRequest& request, SpacePart part = SpacePart::unshared);

  /// Returns whether plans of a layout are asked for.
  bool has(Layout layout) const;
  /// Returns the shapes in the order of layout, encoder's tp, pp, dp, LLM's tp, pp.
  const std::vector<SearchShape>& shapes() const { return shapes_; }
  /// Returns the recomputations; none is first, as it takes least time.
  const std::vector<Recomputation>& recomputations() const { return parts_.recomputations; }
  /// Returns the counts of microbatches, rising.
  std::vector<int> microbatches(const SearchShape& shape) const;
  /// Returns the variants, the plainest first.
  std::vector<SearchVariant> variants(const SearchShape& shape, int microbatches) const;
  /// Returns the plan, its layers cut by cut(); nothing where layers are too few.
  std::optional<Plan> plan(const SearchShape& shape, Recomputation recomputation, int microbatches,
                           const SearchVariant& variant) const;
  /// Returns the plans that differ from one in its order and count of microbatches, in its placement or in
  /// its recomputation. Counts are the next ones, half and twice as many; layers are cut anew only where an
  /// order has other chunks.
  std::vector<Plan> variations(const Plan& plan) const;
  /// Returns the plan with the layers of each module (of a uniform plan: of both together) cut so that the
  /// slowest stage is as fast as it can be while every stage fits; nothing where no cut has stages that all
  /// fit. Without `fits` every stage does.
  /// Connector, embedding and head count; earlier stages, which hold more microbatches, are the lighter ones.
  std::optional<Plan> cut(const Plan& plan, const StageFits& fits = {}) const;
  /// Returns the plan with equal counts of layers in all stages, as near as can be.
  Plan cut_by_count(const Plan& plan) const;
  /// Returns whether no shape has a count of microbatches.
  bool is_empty() const;
  /// Returns the number of combinations, each with one cut of its layers.
  std::int64_t size() const;
  /// Says what there is no plan of, for a space without plans: the wish that cannot be granted, or the
  /// layouts and orders.
  std::string empty_reason() const;
  /// Returns whether a plan of another planner has nothing that the request does not leave open. Its count of
  /// microbatches, chunks and layers of stages may be none of the space.
  bool allows(const Plan& plan) const;

 private:
  bool splits(int encoder_tp, int llm_tp) const;
  void add_disaggregated();
  std::vector<double> shares() const;
  void add_shared();
  void add_uniform(Layout layout);
  std::vector<ModulePlan> modules(const ModuleWish& wish, int gpus, int most_pp, int most_dp) const;
  bool has(OrderKind order) const;

  const PlanRequest& request_;
  SpacePart part_;
  Work total_;  ///< of the first batch
  FreeParts parts_;
  std::vector<const OrderTraits*> orders_;  ///< those of one stage on each rank first, the plainest first
  std::vector<SearchShape> shapes_;
};

}  // namespace dflop
