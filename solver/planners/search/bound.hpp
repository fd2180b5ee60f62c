// SearchBounds are lower bounds on a plan's time and memory, whatever the assignment of samples to
// microbatches.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// A PlanFloor has bounds and estimates of a plan's time and memory, known before the plan is run.
struct PlanFloor {
  double bound_s = 0;     ///< lower bound on the objective under any assignment
  double estimate_s = 0;  ///< expected objective: equal microbatches, plus fill and drain
  Bytes memory;           ///< lower bound on the peak memory under any assignment
  /// This is the expected peak memory, if all microbatches without the largest samples are equal.
  Bytes expected_memory;
  /// This is expected_memory over the hardest further batches, too; unset for families.
  Bytes hard_memory;
};

/// SearchBounds are bounds on the objective of a request: for one plan, for a plan under every cut of its
/// layers, and for all plans of a shape.
///
/// The bounds rest on convexity (CostModel::convex_floor). The total work of a batch is fixed, and the N
/// microbatches of a stage take the least total time, N * f(work / N), when they are equal (Jensen's
/// inequality). The slowest dp rank of a stage takes at least the mean time of the stage's dp ranks.
/// Microbatches without encoder work are subtracted at the cost of a pass over one encoder token.
///
/// Before a rank's first step, the smallest sample must have passed the earlier stages. After its last step
/// come the backwards of these stages (unless the last step is a weight part), its gradient reductions and
/// its optimizer steps. The largest sample passes all stages one after the other, forward and backward.
///
/// Some orders hold as many microbatches as fit into memory, each from its forward until its backward
/// returns. Their number is bounded by windows of microbatches that fit, and by the largest sample.
///
/// Apart from these times, the bounds include neither messages nor pipeline bubbles. They also include no
/// contention between the modules of a shared plan: each module is bounded as if it ran on its share without
/// the other.
///
/// In addition to the promise of convex_floor(), the bounds assume three properties of durations. A module
/// without work takes no longer than with any work. The work of both modules together takes no longer than
/// the sum of the two separately, and no less than either. A stage takes no longer than its layers divided
/// into two stages, and no less than either of the two.
///
/// The bound for several iterations is the bound for their mean work (Jensen's inequality). For the
/// objectives p95 and cvar, it covers only the heaviest iterations, as many as the objective cannot leave
/// out. For p95, it uses the min of each of their counts instead of the mean.
class SearchBounds {
 public:
  explicit SearchBounds(const PlanRequest& request);

  /// Returns whether the cost model has a convex floor; if not, all bounds on time are zero.
  bool known() const { return known_; }

  /// Returns a floor for all plans of a shape with this recomputation and number of microbatches, whatever
  /// their layer cut, order, placement and chosen recomputation of the encoder. Reductions and optimizer
  /// steps are left out. Only one thread may call it at a time.
  PlanFloor shape_floor(const SearchShape& shape, Recomputation recomputation, int microbatches);

  /// Returns the floor of one plan and, except for its estimates, of all plans that differ from it only in a
  /// chosen recomputation of the encoder. Several threads may call it at once.
  PlanFloor plan_floor(const Plan& plan) const;

  /// Returns a bound on the objectives of all plans that differ from this one only in the cut of their layers
  /// and in gradient buckets; infinity if some rank has too little memory under every cut. Several threads
  /// may call it at once.
  ///
  /// The stages of a cut are pieces of a chain of layers. Piece r is bounded like stage r of a plan, with the
  /// fewest layers before it that any cut can have. Greedy pieces, from either end of the chain, are each as
  /// long as a time T and the memory permit. If they do not reach the other end, no cut is within T, because
  /// a piece without some of its layers is neither slower nor larger. The bound is the largest such T, to a
  /// relative precision of 1e-4. If ranks have several pieces, only their counts of layers are considered: T
  /// is too small if these cannot add up to all layers.
  double cuts_bound(const Plan& plan) const;

  /// Returns whether two plans of one shape, recomputation and number of microbatches have the same
  /// cuts_bound().
  static bool have_one_cuts_bound(const Plan& a, const Plan& b);

  /// Returns the expected memory of the rank that holds `stage`, whose number in plan_stages() is
  /// `stage_index`. It assumes that all stages of the rank are like this one, and that all microbatches
  /// without the largest samples are equal. With `further`, includes the hardest further batches. Several
  /// threads may call it at once.
  Bytes expected_memory(const Plan& plan, int stage_index, const Stage& stage, bool further) const;

 private:
  enum class Kind : std::uint8_t { encoder, llm, both };

  class PlanPrice;
  class ChainPrice;
  class ChunkPrice;

  static constexpr double kRounding = 0.5e-9;  // of a duration to whole nanoseconds

  /// A HardBatch is a made-up batch whose memory estimates are about as high as the highest of some batches.
  struct HardBatch {
    Work work;                               // of the heaviest batch
    std::vector<Work> falling;               // the largest samples, by LLM tokens
    std::vector<Work> encoder_sums{Work{}};  // the max encoder work of 0, 1, ... samples
    void add(const Batch& batch);
  };

  /// A FloorBatch summarizes the iterations: it has the properties that a bound depends on.
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
    HardBatch hardest;                  // of the iterations and the hardest further batches
  };

  /// Returns the modules that the LLM's ranks hold under a layout: both if it is uniform, otherwise only the
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
  Stage with_choice(Stage stage, Layout layout, Recomputation choice) const;
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
