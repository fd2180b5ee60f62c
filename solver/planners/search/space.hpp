// A SearchSpace has the plans that the planner "search" considers.
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

/// A SearchShape has the parallelism of each module of a plan. In a uniform layout, both modules have the
/// same parallelism. In a colocated layout, the encoder has one stage on all ranks
/// and the requested tp or, without one, the LLM's tp and, if tries_encoder_grids(), tp 1.
struct SearchShape {
  Layout layout = Layout::disaggregated;
  ModulePlan encoder;        ///< layers are not set
  ModulePlan llm;            ///< layers are not set
  double encoder_share = 0;  ///< only in shared plans
};

/// A SpacePart says which of a request's plans a search space has: the plans with shared GPUs, or all others.
enum class SpacePart : std::uint8_t { unshared, shared };

/// Returns whether the GPUs of stage number `stage`, counted from the encoder's first, can hold it.
using StageFits = std::function<bool(int stage, const Stage& of)>;

/// Returns whether colocated plans may have an encoder tp of 1 that is not requested. They do not in searches
/// over all layouts, where they take the place of other plans that are finished with the final scheduler:
/// with them, the demo's search found a plan that is 0.6 % slower.
inline bool tries_encoder_grids(const PlanRequest& request) {
  return !request.search.layouts.empty();
}

/// Returns whether the search chooses the recomputation of an encoder with stages of its own apart from the
/// LLM's. It does not if the request fixes either.
inline bool chooses_encoder_recomputation(const PlanRequest& request) {
  return request.search.recomputations.empty() && !request.options.encoder_recomputation;
}

/// A SearchVariant has the choices, except the cut of layers, that remain when shape, recomputation and
/// number of microbatches are chosen.
struct SearchVariant {
  OrderKind order = OrderKind::one_f_one_b;
  int chunks = 1;
  RankOrder placement = RankOrder::stage_major;
};

/// A SearchSpace has every combination of
///   layout          disaggregated, uniform, colocated (with pp 2 or more)
///   tp              the divisors of a node's GPUs; each module has its own tp if it has its own ranks
///   pp, dp          any that use all GPUs, with at least one layer per stage and dp <= gbs for the LLM; if
///                   the user fixes dp, or tp and pp, some GPUs may be left over
///   microbatches    1 to 8, then 10, 12, 14, 16, 20, ..., four an octave, up to a sample for each bin; for
///                   interleaved, multiples of pp, unless the user fixes the number
///   order           1f1b, zb-h1, zb-h2, eager-1f1b and, with two chunks for an LLM (or uniform) pipeline
///                   of at least two ranks, interleaved and zb-v; on one rank of a uniform plan, where all
///                   orders are alike except for the memory of chunks, 1f1b and interleaved; gpipe only on
///                   request; encoder-in-bubbles only for colocated plans, three-phase and on-demand also
///                   only on request
///   layers          every cut of the layers into stages of at least one layer
///   placement       stage-major; replica-major if the pipeline is more than one rank and a node more than
///                   one tp group
///   recomputation   none, selective, full; an encoder with stages of its own may have another than the LLM
/// If encoder layers feed LLM layers (Architecture::deepstack), only plans whose stages can pass on such
/// features: pp 1 in the uniform layout, else encoder pp 1, and LLM stages with enough layers. or, as
/// SpacePart::shared, every shared plan: any two modules that each use all GPUs, with an eighth to seven
/// eighths of each GPU for the encoder. There are no shared plans if the cost model cannot price shares, if
/// the cluster has GPUs of several types, or if the request excludes them.
///
/// Plans use the first gradient buckets that the request permits. The search tries the other bucket sizes
/// only on its best plans, because buckets never raise a plan's bound: reductions may overlap. ZeRO-1 and
/// sequence parallelism come from the request. Splitting an optimizer state by ZeRO-1 never makes it larger
/// or its step slower, so nothing is lost by not trying plans without ZeRO-1.
class SearchSpace {
 public:
  explicit SearchSpace(const PlanRequest& request, SpacePart part = SpacePart::unshared);

  /// Returns whether the request permits plans of a layout.
  bool has(Layout layout) const;
  /// Returns the shapes in the order of layout, encoder's tp, pp, dp, LLM's tp, pp.
  const std::vector<SearchShape>& shapes() const { return shapes_; }
  /// Returns the recomputations; `none` comes first because it is fastest.
  const std::vector<Recomputation>& recomputations() const { return parts_.recomputations; }
  /// Returns the numbers of microbatches in increasing order.
  std::vector<int> microbatches(const SearchShape& shape) const;
  /// Returns the variants, the plainest first.
  std::vector<SearchVariant> variants(const SearchShape& shape, int microbatches) const;
  /// Returns the plan with these choices and its layers cut by cut(); nullopt if there are too few layers.
  std::optional<Plan> plan(const SearchShape& shape, Recomputation recomputation, int microbatches,
                           const SearchVariant& variant) const;
  /// Returns the plans that differ from `plan` either in order and number of microbatches, in placement, or
  /// in recomputation. The numbers of microbatches are the next smaller and larger ones, half and twice the
  /// plan's. Layers are cut anew only if an order has a different number of chunks.
  std::vector<Plan> variations(const Plan& plan) const;
  /// Returns the plan with the layers of each module (of a uniform plan: of both together) cut so that the
  /// slowest stage is as fast as possible while every stage fits; nullopt if no cut has only stages that fit.
  /// If `fits` is empty, every stage fits. The times of connector, embedding and head are included. If stages
  /// differ, the earlier ones are lighter, because they hold more microbatches.
  std::optional<Plan> cut(const Plan& plan, const StageFits& fits = {}) const;
  /// Returns the plan with equal numbers of layers in all stages, as nearly as possible.
  Plan cut_by_count(const Plan& plan) const;
  /// Returns whether no shape has a valid number of microbatches.
  bool is_empty() const;
  /// Returns the number of combinations, counting one cut of layers for each.
  std::int64_t size() const;
  /// Returns why an empty space has no plans: the option that cannot be satisfied, or the layouts and orders.
  std::string empty_reason() const;
  /// Returns whether all choices of a plan from a different planner are ones that the request permits. Its
  /// numbers of microbatches and chunks and its cut of layers may be outside the space.
  bool allows(const Plan& plan) const;

 private:
  bool splits(int encoder_tp, int llm_tp) const;
  /// Returns the number of stages that each pipeline rank has in an order.
  int chunks_of(const OrderTraits& order) const;
  /// Returns why the only permitted order needs more layers than these; empty if it does not.
  std::string broken_order(int layers) const;
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
  std::vector<const OrderTraits*> orders_;  ///< orders with one stage on each rank first, the plainest first
  std::vector<SearchShape> shapes_;
};

}  // namespace dflop
