// SearchBounds say what no assignment of samples to microbatches can go below, in time and in memory.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// A PlanFloor is what is known of a plan before it is run.
struct PlanFloor {
  double bound_s = 0;     ///< no assignment makes the objective smaller
  double estimate_s = 0;  ///< what it may well be: with equal microbatches, filling and draining the pipeline
  Bytes memory;           ///< that some rank needs at least, in some iteration
  Bytes expected_memory;  ///< the same with microbatches that are equal but for those of the largest samples
  Bytes hard_memory;      ///< the same for the hardest further batches, too; unset for families
};

/// SearchBounds are bounds on the objective of a request: of one plan, of a plan under every cut of its
/// layers, and of all plans of a shape.
///
/// They rest on convexity (CostModel::convex_floor): the work of a batch is what it is, and N microbatches of
/// a stage take least when they are equal, N times f(work / N) together (Jensen's inequality); a rank is busy
/// as long as the mean of the dp ranks of its stage. Microbatches without encoder work are taken out at what
/// a pass over one encoder token takes. Before a rank's first step the smallest sample must have passed the
/// stages before it, and after its last one come those stages' backwards (unless its last one is a weight
/// part), its gradient reductions and its optimizer steps. The largest sample passes the stages one after the
/// other, forward and backward. A rank of an order that holds as many microbatches as there is memory for
/// holds no more than fit if all were as large as the largest sample, and each from its forward until its
/// backward is back. Messages and pipeline bubbles beyond these are not in the bounds, nor what the modules
/// of a shared plan take from each other: each is bounded as if alone on its share.
///
/// Beyond convex_floor()'s own promise that is true if an empty module takes no longer than any work of it,
/// work of both modules no longer than each apart and no less than either, and a stage no longer than its
/// layers cut into two and no less than either part.
///
/// Several iterations have the bound of their mean work (Jensen again); for p95 and cvar that of the heaviest
/// iterations, as many as the objective cannot leave out (p95: of the least of their counts).
class SearchBounds {
 public:
  explicit SearchBounds(const PlanRequest& request);

  /// Returns whether the cost model knows bounds; without them all are zero.
  bool known() const { return known_; }

  /// Returns the floor of all plans of a shape with this recomputation and count of microbatches, with any
  /// layer split, order and placement; reductions and optimizer steps are left out. It is not safe to call
  /// from several threads.
  PlanFloor shape_floor(const SearchShape& shape, Recomputation recomputation, int microbatches);

  /// Returns the floor of one plan. It is safe to call from several threads.
  PlanFloor plan_floor(const Plan& plan) const;

  /// Returns a bound on the objectives of all plans that differ from this one by how their layers are cut and
  /// by gradient buckets; infinity where some rank has too little memory under every cut. It is safe to call
  /// from several threads.
  ///
  /// The stages of a cut are pieces of a chain of layers, and piece r is bounded as stage r of a plan is,
  /// with the fewest layers before it that the cut can have. Some cut is within a time T only if greedy
  /// pieces from either end, each as long as T and memory allow, reach the other: a piece without some of its
  /// layers is neither slower nor larger. The bound is the largest T, to within 1e-4 of it, for which they do
  /// not. Of ranks with several pieces only the counts of layers are looked at: for smaller T these do not
  /// add up to all.
  double cuts_bound(const Plan& plan) const;

  /// Returns whether two plans of one shape, recomputation and count of microbatches have the same
  /// cuts_bound().
  static bool have_one_cuts_bound(const Plan& a, const Plan& b);

  /// Returns what the rank of a stage, counted as in plan_stages(), is expected to need if all of its stages
  /// are as this one and microbatches are equal but for those of the largest samples; with `further` in the
  /// hardest further batches, too. It is safe to call from several threads.
  Bytes expected_memory(const Plan& plan, int stage_index, const Stage& stage, bool further) const;

 private:
  enum class Kind : std::uint8_t { encoder, llm, both };

  class PlanPrice;
  class ChainPrice;
  class ChunkPrice;

  static constexpr double kRounding = 0.5e-9;  // of a duration to whole nanoseconds

  /// A HardBatch is about as hard to fit as the hardest of some batches, as estimates of memory take it.
  struct HardBatch {
    Work work;                               // of the heaviest
    std::vector<Work> falling;               // the largest samples, by LLM tokens
    std::vector<Work> encoder_sums{Work{}};  // the most encoder work that 0, 1, ... samples have
    void add(const Batch& batch);
  };

  /// A FloorBatch is what the iterations that a bound hangs on have in common.
  struct FloorBatch {
    Work work;                          // of an iteration
    Work most_work;                     // of the heaviest
    Work least_work;                    // no iteration has less
    double with_encoder = 1;            // part of the iterations that have encoder work
    std::int64_t no_encoder = 0;        // samples without, at most
    std::int64_t no_llm = 0;            // samples without LLM tokens, at most
    Workload smallest;                  // of the LLM
    std::vector<Work> largest_of_each;  // the sample with the most LLM tokens of each iteration
    Sample largest;                     // of the LLM, in any iteration
    HardBatch heaviest;                 // of the iterations
    HardBatch hardest;                  // of these and of the hardest further batches
  };

  /// Returns which modules the LLM's ranks hold under a layout: both if it is uniform, else the LLM alone.
  static Kind kind_of(Layout layout) { return layout == Layout::uniform ? Kind::both : Kind::llm; }
  static FloorBatch floor_batch(const PlanRequest& request);
  /// A Key says for what totals_ and ways_ keep what was worked out: a kind, tp, recomputation, share and
  /// number of bins.
  using Key = std::tuple<Kind, int, Recomputation, double, std::int64_t>;
  double floor_of(Op op, const Stage& stage, const Work& work) const {
    return request_.cost.convex_floor(op, stage, work).value_or(Seconds(0)).count();
  }
  double passes(const Stage& stage, const Work& work, bool split) const;
  double total_of(const Stage& stage, std::int64_t bins, bool shared_encoder, bool split) const;
  double largest_chain(Kind kind, int tp, Recomputation recomputation, double share) const;
  double largest_way(Kind kind, int tp, Recomputation recomputation, double share);
  double whole_module(Kind kind, int tp, Recomputation recomputation, double share, std::int64_t bins);
  void set_whole_memory(PlanFloor& floor, Kind kind, const ModulePlan& module, Recomputation recomputation,
                        int microbatches, int llm_dp, int held) const;
  Stage whole_stage(Kind kind, int tp, int dp, Recomputation recomputation) const;
  Work held_work(const HardBatch& batch, const Stage& stage, int microbatches, int llm_dp, int held) const;
  Bytes surely_live(const Plan& plan, const Stage& stage, int held) const;

  const PlanRequest& request_;
  bool known_ = true;
  FloorBatch batch_;
  std::map<Key, double> totals_;
  std::map<Key, double> ways_;
};

}  // namespace dflop
