// Paths through the steps of a pipeline are lower bounds on its makespan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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
class MeanPipeline {
 public:
  explicit MeanPipeline(const LoadPipeline& pipeline);

  struct Step {
    std::int32_t microbatch;
    std::int32_t duration;   ///< into times()
    std::int32_t same_rank;  ///< the step before on its rank, -1: none
    std::int32_t after;      ///< the step whose message it waits for, -1: none
    std::int32_t message;    ///< into times(), where it waits
    std::int32_t rank;
  };

  struct Time {
    double fixed_s;
    std::vector<double> weight;  ///< per feature
  };

  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Time>& times() const { return times_; }
  /// Returns the last step of a rank; -1: none.
  std::int32_t last_step(int rank) const { return last_[rank]; }
  double tail_s(int rank) const { return tail_s_[rank]; }
  int microbatches() const { return microbatches_; }
  std::size_t features() const { return features_; }
  int ranks() const { return static_cast<int>(last_.size()); }

  /// Returns the mean of paths, a row for each microbatch. It is a bound whatever the numbers: those that are
  /// no weights are made some, and the paths' durations are this pipeline's own.
  /// @pre as many ranks and steps as this pipeline has
  PathBound bound(const PathFlow& flow) const;

  /// Returns the work, fill and drain of each rank that has steps, as they are in any order of its steps, and
  /// the mean of all ranks: the fill is what comes before any of its steps with empty microbatches, the drain
  /// likewise.
  std::vector<PathBound> rank_bounds() const;

 private:
  std::int32_t time_of(const LoadTime& time, const LoadPipeline& pipeline);
  /// Adds a time, taken by a part of all paths, to a bound with a row for each microbatch.
  void add(PathBound& bound, std::int32_t time, int microbatch, double part = 1) const;

  int microbatches_;
  std::size_t features_;
  std::vector<LoadTime> keys_;  ///< of times_
  std::vector<Time> times_;
  std::vector<Step> steps_;
  std::vector<std::int32_t> last_;  ///< per rank, its last step; -1: none
  std::vector<double> tail_s_;
};

}  // namespace dflop
