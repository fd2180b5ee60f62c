// A SearchSpace has the plans among which the planner "search" looks for the best.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/iteration/planner.hpp"
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

/// A LayerSplit says where a plan's layers go.
enum class LayerSplit : std::uint8_t {
  balanced,  ///< the slowest stage is as fast as whole layers allow, with connector, embedding and head
             ///< counted; earlier stages, which hold more microbatches, are the lighter ones
  even,      ///< equal counts; a uniform plan's over encoder and LLM layers together
};

/// A SearchVariant is what is left to choose of a shape with recomputation and microbatches.
struct SearchVariant {
  OrderKind order = OrderKind::one_f_one_b;
  int chunks = 1;
  LayerSplit split = LayerSplit::balanced;
  RankOrder placement = RankOrder::stage_major;
};

/// A SearchSpace has every combination of
///   layout          disaggregated, uniform, colocated (with pp 2 or more)
///   tp              the divisors of a node's GPUs, for each module its own where they are apart
///   pp, dp          any that use all GPUs, with a layer of its own for each stage and dp <= gbs for the LLM;
///                   where dp, or tp and pp, are wished for, some GPUs may be left over
///   microbatches    1 to 8, then 10, 12, 14, 16, 20, ..., four an octave, up to a sample for each bin; for
///                   interleaved those that are multiples of pp
///   order           1f1b alone where the pipeline is one rank, else also zb-h1, zb-h2, eager-1f1b and, with
///                   two chunks for an LLM (or uniform) pipeline of at least two ranks, interleaved and zb-v;
///                   gpipe only where it is asked for; encoder-in-bubbles for colocated plans alone
///   layers          the two splits of LayerSplit
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
  /// Returns the plan, or nothing where an even split is the balanced one, or layers are too few.
  std::optional<Plan> plan(const SearchShape& shape, Recomputation recomputation, int microbatches,
                           const SearchVariant& variant) const;
  /// Returns whether no shape has a count of microbatches.
  bool is_empty() const;
  /// Returns the number of combinations.
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
  void set_layers(Plan& plan, LayerSplit split) const;

  const PlanRequest& request_;
  SpacePart part_;
  Work total_;  ///< of the first batch
  FreeParts parts_;
  std::vector<const OrderTraits*> orders_;  ///< those of one stage on each rank first, the plainest first
  std::vector<SearchShape> shapes_;
};

/// Cuts items that follow each other into `parts` pieces of at least one, so that the largest sum of a piece
/// is as small as possible, the last pieces as large as that allows. Returns the count of each piece.
/// @pre at least as many items as parts, no item negative
std::vector<int> cut_evenly(const std::vector<double>& items, int parts);

}  // namespace dflop
