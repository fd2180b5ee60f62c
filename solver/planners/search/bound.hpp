// SearchBounds are lower bounds, over all assignments of samples to microbatches, on a plan's time and
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// A PlanFloor has what is known of a plan before it is run.
struct PlanFloor {
  double bound_s = 0;     ///< lower bound on the objective under any assignment
  double estimate_s = 0;  ///< expected objective: equal microbatches, plus fill and drain
  Bytes memory;           ///< min memory of some rank in some iteration
  Bytes expected_memory;  ///< with microbatches that are equal except those of the largest samples
  Bytes hard_memory;      ///< expected memory including the hardest further batches; unset for families
};

/// SearchBounds are bounds on the objective of a request: for one plan, for a plan under every cut of its
/// layers, and for all plans of a shape.
///
/// They rest on convexity (CostModel::convex_floor). The total work of a batch is fixed, and N microbatches
/// of a stage take the least time when they are equal: N times f(work / N) together (Jensen's inequality). A
/// rank is busy at least as long as the mean of its stage's dp ranks. Microbatches without encoder work are
/// subtracted at the cost of a pass over one encoder token. Before a rank's first step the smallest sample
/// must have passed the stages before it. After its last step come the backwards of those stages (unless the
/// last step is a weight part), its gradient reductions and its optimizer steps. The largest sample passes
/// the stages one after the other, forward and backward. In an order that holds as many microbatches as fit
/// into memory, a rank holds at most as many as fit if all were as large as the largest sample, and each from
/// its forward until its backward returns. The bounds do not include messages and pipeline bubbles beyond
/// these, nor contention between the modules of a shared plan: each module is bounded as if it ran on its
/// share without the other.
///
/// Beyond the promise of convex_floor(), the bounds assume that an empty module takes no longer than any work
/// of it; that work of both modules takes no longer than the two separately and no less than either; and that
/// a stage takes no longer than its layers divided into two stages and no less than either of these.
///
/// Several iterations have the bound of their mean work (Jensen again). For p95 and cvar it is the bound of
/// the heaviest iterations, as many as the objective cannot leave out (p95: of the min of their counts).
class SearchBounds {
 public:
  explicit SearchBounds(const PlanRequest& request);

  /// Returns whether the cost model knows bounds; without them all are zero.
  bool known() const { return known_; }

  /// Returns the floor of all plans of a shape with this recomputation and number of microbatches, with any
  /// layer cut, order and placement. Reductions and optimizer steps are left out. Only one thread may call it
  /// at a time.
  PlanFloor shape_floor(const SearchShape& shape, Recomputation recomputation, int microbatches);

  /// Returns the floor of one plan. Several threads may call it at once.
  PlanFloor plan_floor(const Plan& plan) const;

  /// Returns a bound on the objectives of all plans that differ from this one only in the cut of their layers
  /// and in gradient buckets; infinity if some rank has too little memory under every cut. Several threads
  /// may call it at once.
  ///
  /// The stages of a cut are pieces of a chain of layers. Piece r is bounded like stage r of a plan, with the
  /// fewest layers before it that the cut can have. Some cut is within a time T only if greedy pieces from
  /// either end, each as long as T and memory permit, reach the other end, because a piece without some of
  /// its layers is neither slower nor larger. The bound is the largest T, to within 1e-4 of it, for which
  /// they do not reach it. For ranks with several pieces only the counts of layers are considered: for
  /// smaller T these do not add up to all layers.
  double cuts_bound(const Plan& plan) const;

  /// Returns whether two plans of one shape, recomputation and number of microbatches have the same
  /// cuts_bound().
  static bool have_one_cuts_bound(const Plan& a, const Plan& b);

  /// Returns the expected memory of a stage's rank (counted as in plan_stages()), if all of the rank's stages
  /// are like this one and microbatches are equal except those of the largest samples. With `further`,
  /// includes the hardest further batches. Several threads may call it at once.
  Bytes expected_memory(const Plan& plan, int stage_index, const Stage& stage, bool further) const;

 private:
  enum class Kind : std::uint8_t { encoder, llm, both };

  class PlanPrice;
  class ChainPrice;
  class ChunkPrice;

  static constexpr double kRounding = 0.5e-9;  // of a duration to whole nanoseconds

  /// A HardBatch is about as hard to fit as the hardest of some batches, according to memory estimates.
  struct HardBatch {
    Work work;                               // of the heaviest batch
    std::vector<Work> falling;               // the largest samples, by LLM tokens
    std::vector<Work> encoder_sums{Work{}};  // the max encoder work of 0, 1, ... samples
    void add(const Batch& batch);
  };

  /// A FloorBatch has common properties of the iterations that a bound depends on.
  struct FloorBatch {
    Work work;                          // of an iteration
    Work most_work;                     // of the heaviest iteration
    Work least_work;                    // no iteration has less
    double with_encoder = 1;            // fraction of the iterations that have encoder work
    std::int64_t no_encoder = 0;        // max number of samples without encoder work
    std::int64_t no_llm = 0;            // max number of samples without LLM tokens
    Workload smallest;                  // of the LLM
    std::vector<Work> largest_of_each;  // the sample with the most LLM tokens of each iteration
    Sample largest;                     // sample with the most LLM tokens, in any iteration
    HardBatch heaviest;                 // of the iterations
    HardBatch hardest;                  // of these and of the hardest further batches
  };

  /// Returns which modules the LLM's ranks hold under a layout: both if it is uniform, otherwise only the
  /// LLM.
  static Kind kind_of(Layout layout) { return layout == Layout::uniform ? Kind::both : Kind::llm; }
  static FloorBatch floor_batch(const PlanRequest& request);
  /// A Key identifies entries of the caches totals_ and ways_: a kind, tp, recomputation, share and number of
  /// bins.
  using Key = std::tuple<Kind, int, Recomputation, double, std::int64_t>;
  double floor_of(Op op, const Stage& stage, const Work& work) const {
    return request_.cost.convex_floor(op, stage, work).value_or(Seconds(0)).count();
  }
  double passes(const Stage& stage, const Work& work, bool split) const;
  double total_of(const Stage& stage, std::int64_t bins, bool shared_encoder, bool split) const;
  double largest_chain(Kind kind, int tp, Recomputation recomputation, double share) const;
  double cached_largest_chain(Kind kind, int tp, Recomputation recomputation, double share);
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
