// MakespanBounds are proven lower bounds on the makespan of a pipeline over all assignments of a batch: paths
// through its steps.
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

/// A PathBound is a lower bound on the makespan that is a sum over items: constant_s, and for each item the
/// least of weight . features over the rows of `weight`, one row for each microbatch at first.
///
/// Any path of steps from the start of an iteration to its end is such a bound, and so is any weighted mean
/// of paths: its length is affine in the microbatches' sums of features, and each item is in some microbatch.
struct PathBound {
  double constant_s = 0;
  std::size_t features = 0;
  std::vector<double> weight;  ///< [row, feature], not negative

  PathBound() = default;
  PathBound(std::size_t row_count, std::size_t feature_count)
      : features(feature_count), weight(row_count * feature_count, 0.0) {}

  std::size_t rows() const { return features == 0 ? 0 : weight.size() / features; }
  std::span<const double> row(std::size_t r) const { return {&weight[r * features], features}; }

  /// Adds a multiple of another one with as many rows.
  void add(const PathBound& other, double times);

  /// Drops rows that are nowhere below another one; no value changes.
  void reduce();

  /// Returns the bound for these items in seconds, less what rounding may add. Features are not negative.
  double at(const Features& items) const;
};

/// A PathFlow has the weights of all paths through a pipeline's steps, as a flow from end to start.
struct PathFlow {
  std::vector<double> ends;   ///< per rank: the part of paths that end with its last step, in any unit
  std::vector<double> waits;  ///< per step: of the paths through it, the part that comes by its message
};

/// A MeanPipeline is the pipeline of mean loads over dp ranks, which ends no later than the real one: ends of
/// steps are made of maxima and sums, and a mean of maxima is at least the maximum of means, with a step that
/// replicas share (which waits for the latest of them) as with one that each has.
struct MeanPipeline {
  struct Step {
    std::int32_t microbatch;
    std::int32_t duration;   ///< into `times`
    std::int32_t same_rank;  ///< the step before on its rank, -1: none
    std::int32_t after;      ///< the step whose message it waits for, -1: none
    std::int32_t message;    ///< into `times`, where it waits
    std::int32_t rank;
  };

  struct Time {
    double fixed_s;
    std::vector<double> weight;  ///< per feature
  };

  int microbatches;
  std::size_t features;
  std::vector<Time> times;  ///< of steps and messages, equal ones once
  std::vector<Step> steps;
  std::vector<std::int32_t> last;  ///< per rank, its last step; -1: none
  std::vector<double> tail_s;      ///< per rank
  int links;                       ///< of the ranks: LoadPipeline::links

  explicit MeanPipeline(const LoadPipeline& pipeline);

  int ranks() const { return static_cast<int>(last.size()); }

  /// Returns the mean of paths, a row for each microbatch. It is a bound whatever the numbers: those that are
  /// no weights are made some, and the paths' durations are this pipeline's own.
  /// @pre as many ranks and steps as this pipeline has
  PathBound bound(const PathFlow& flow) const;

  /// Returns the work, fill and drain of each rank that has steps, as they are in any order of its steps, and
  /// the mean of all ranks but links: the fill is what comes before any of its steps with empty microbatches,
  /// the drain likewise.
  std::vector<PathBound> rank_bounds() const;

  /// Adds a time, taken by a part of all paths, to a bound with a row for each microbatch.
  void add(PathBound& bound, std::int32_t time, int microbatch, double part = 1) const;
};

/// A MakespanBound is a makespan that no assignment goes below.
struct MakespanBound {
  double seconds = 0;
  BoundKind kind = BoundKind::none;
};

/// ProgramLimits say how large a linear program is solved, and for how long.
struct ProgramLimits {
  std::size_t shapes = 3;    ///< that items are mixtures of, at least 2
  int iterations = 50'000;   ///< of the simplex method, 10 to 60 us each
  std::size_t steps = 4096;  ///< of a larger pipeline nothing is solved, as that takes many seconds
};

/// MakespanBounds are bounds for one pipeline and the items of any batch: they need no items of the same
/// number or size, as a path through the steps is one for every batch. Features must not be negative, nor
/// durations fall with loads. They are safe to use from several threads at once.
class MakespanBounds {
 public:
  /// `best` is linear_program, or simple for a pipeline whose order is but one of those that durations may
  /// lead to: then only what holds in every order is used; or none.
  explicit MakespanBounds(LoadPipeline pipeline, BoundKind best = BoundKind::linear_program);

  /// Solves the linear program over fractional items for this batch, and keeps its dual solution for bound():
  /// a few milliseconds for tens of microbatches. Does nothing where `best` is not linear_program.
  void prepare(const Features& features, const ProgramLimits& limits = {});

  /// Returns the largest bound that is known for these items: work, fill and drain of each rank, the way of
  /// the largest items, and the dual solutions of all prepared batches. It depends on what was prepared and
  /// on nothing else.
  MakespanBound bound(const Features& features) const;

  /// Returns the dual solutions of all prepared batches, as paths.
  std::vector<PathFlow> flows() const {
    const std::lock_guard lock(mutex_);
    return flows_;
  }

  /// Adds paths to bound(): those of another pipeline with as many ranks and steps are as valid, though not
  /// as good if its durations are others. Does nothing where there are more or fewer, or where `best` is not
  /// linear_program.
  void use(const PathFlow& flow);

  const LoadPipeline& pipeline() const { return pipeline_; }

 private:
  /// Returns what an item's own microbatch takes from its first step to its last, at least.
  double way_of(const Features& features, std::size_t item) const;

  LoadPipeline pipeline_;
  BoundKind best_;
  MeanPipeline mean_;
  std::vector<PathBound> ranks_;           ///< of each rank and of their mean
  std::vector<std::int32_t> same_before_;  ///< per step, the one before of its rank and microbatch; -1: none
  mutable std::mutex mutex_;
  std::vector<PathFlow> flows_;
  std::vector<std::shared_ptr<const PathBound>> duals_;  ///< of the flows
};

}  // namespace dflop
