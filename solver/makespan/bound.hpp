// MakespanBounds are proven lower bounds on the makespan of a pipeline over all assignments of a batch. They
// are derived from paths through its steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/solution.hpp"
#include "solver/load_pipeline.hpp"

namespace dflop {

/// A PathBound is a lower bound on the makespan: constant_s plus, for each item, the min over the rows of
/// `weight` of the scalar product of row and features. At first there is one row for each microbatch.
///
/// Any path of steps from the start of an iteration to its end is such a bound, and so is any weighted mean
/// of paths: its length is affine in the microbatches' sums of features, and each item is in some microbatch.
struct PathBound {
  double constant_s = 0;
  std::size_t features = 0;
  std::vector<double> weight;  ///< [row, feature], non-negative

  PathBound() = default;
  PathBound(std::size_t row_count, std::size_t feature_count)
      : features(feature_count), weight(row_count * feature_count, 0.0) {}

  std::size_t rows() const { return features == 0 ? 0 : weight.size() / features; }
  std::span<const double> row(std::size_t r) const { return {&weight[r * features], features}; }

  /// Adds a multiple of another bound with the same number of rows.
  void add(const PathBound& other, double times);

  /// Drops every row that is at least another row in all features; at() returns the same values.
  void reduce();

  /// Returns the bound for these items, in seconds, minus a margin for rounding. Features must not be
  /// negative.
  double at(const Features& items) const;
};

/// A PathFlow has the weights of all paths through a pipeline's steps, as a flow from end to start.
struct PathFlow {
  std::vector<double> ends;   ///< per rank: weight of the paths that end with its last step, in any unit
  std::vector<double> waits;  ///< per step: fraction of the paths through it that come from step `after`
};

/// A MeanPipeline is the pipeline for the mean loads over dp ranks. It never finishes later than the real
/// pipeline: the end of a step is made of maxima and sums, and a mean of maxima is at least the maximum of
/// means. This holds for replicated steps and for shared steps, which wait for the latest replica.
struct MeanPipeline {
  struct Step {
    std::int32_t microbatch;
    std::int32_t duration;   ///< index into `times`
    std::int32_t same_rank;  ///< the previous step on its rank, -1: none
    std::int32_t after;      ///< the step whose message it waits for, -1: none
    std::int32_t message;    ///< index into `times`, if it waits
    std::int32_t rank;
  };

  struct Time {
    double fixed_s;
    std::vector<double> weight;  ///< per feature
  };

  int microbatches;
  std::size_t features;
  std::vector<Time> times;  ///< of steps and messages; equal ones are stored once
  std::vector<Step> steps;
  std::vector<std::int32_t> last;  ///< per rank, its last step; -1: none
  std::vector<double> tail_s;      ///< per rank
  int links;                       ///< number of link ranks: LoadPipeline::links

  explicit MeanPipeline(const LoadPipeline& pipeline);

  int ranks() const { return static_cast<int>(last.size()); }

  /// Returns the weighted mean of the paths in `flow`, with a row for each microbatch. It is a valid bound
  /// whatever the numbers in `flow`: invalid weights are replaced by valid ones, and the durations are this
  /// pipeline's own.
  /// @pre `flow` has as many ranks and steps as this pipeline
  PathBound bound(const PathFlow& flow) const;

  /// Returns a bound for each rank, the sum of its work, fill and drain, and then the mean of these bounds
  /// over all ranks except links. They are valid for any order of a rank's steps. The fill is the min time
  /// before any step of the rank, with empty microbatches; likewise, the drain is the min time after any
  /// step.
  std::vector<PathBound> rank_bounds() const;

  /// Adds an entry of `times` to a bound that has a row for each microbatch. `part` is the fraction of all
  /// paths that take this time.
  void add(PathBound& bound, std::int32_t time, int microbatch, double part = 1) const;
};

/// A MakespanBound is a lower bound on the makespan of every assignment.
struct MakespanBound {
  double seconds = 0;
  BoundKind kind = BoundKind::none;
};

/// ProgramLimits limit the size of the linear program and the time to solve it.
struct ProgramLimits {
  std::size_t shapes = 3;    ///< max number of shapes, at least 2; items are treated as mixtures of them
  int iterations = 50'000;   ///< max iterations of the simplex method, 10 to 60 us each
  std::size_t steps = 4096;  ///< max steps of a pipeline; solving larger ones takes many seconds
};

/// MakespanBounds are bounds for one pipeline and any batch of items. A path that was found for one batch is
/// also a bound for all others, whatever the number or size of their items. Features must not be negative,
/// and durations must not fall with loads. Several threads may use an object at once.
class MakespanBounds {
 public:
  /// `best` is the best kind of bound to use: linear_program, simple or none. Use simple for a pipeline whose
  /// order depends on durations: these bounds use only properties common to all orders.
  explicit MakespanBounds(LoadPipeline pipeline, BoundKind best = BoundKind::linear_program);

  /// Solves the linear program over fractional items for this batch, and keeps its dual solution for bound().
  /// This takes a few milliseconds for tens of microbatches. Does nothing unless `best` is linear_program, or
  /// if the pipeline has more steps than `limits` permits.
  void prepare(const Features& features, const ProgramLimits& limits = {});

  /// Returns the largest known bound for these items. The bounds come from the work, fill and drain of each
  /// rank, from the path of the largest items, and from the dual solutions of prepare() and use().
  MakespanBound bound(const Features& features) const;

  /// Returns the dual solutions that bound() uses, as paths.
  std::vector<PathFlow> flows() const {
    const std::lock_guard lock(mutex_);
    return flows_;
  }

  /// Adds paths that bound() uses. They may come from a different pipeline with the same number of ranks and
  /// steps; if its durations differ, the bound is weaker but valid. Does nothing if the numbers differ, or
  /// unless `best` is linear_program.
  void use(const PathFlow& flow);

  const LoadPipeline& pipeline() const { return pipeline_; }

 private:
  /// Returns the min time that the microbatch of an item takes from its first step to the end of its last
  /// one.
  double way_of(const Features& features, std::size_t item) const;

  LoadPipeline pipeline_;
  BoundKind best_;
  MeanPipeline mean_;
  std::vector<PathBound> ranks_;           ///< of each rank and of their mean
  std::vector<std::int32_t> same_before_;  ///< per step: previous step of its rank and microbatch; -1: none
  mutable std::mutex mutex_;
  std::vector<PathFlow> flows_;
  std::vector<std::shared_ptr<const PathBound>> duals_;  ///< of the flows
};

}  // namespace dflop
