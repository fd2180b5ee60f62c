// A MakespanKernel is a LoadPipeline compiled for a search: it finds the makespans of many candidates at
// once, and from which loads one comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "solver/lanes.hpp"
#include "solver/load_pipeline.hpp"

namespace dflop {

/// A CriticalPath says what the makespan is, and how it changes with the values: with no smoothing by the
/// columns of a longest path.
struct CriticalPath {
  double makespan_s = 0;
  double smooth_s = 0;           ///< not below the makespan, the same without smoothing
  std::vector<double> gradient;  ///< of smooth_s, per column
};

/// A MakespanNode is a step, or what a shared one waits for on one of the dp ranks: end = max(end of
/// previous, end of after + message) + duration. Ends and times are indices.
struct MakespanNode {
  std::int32_t previous;
  std::int32_t after;
  std::int32_t message;
  std::int32_t duration;
  std::int32_t end;
};

/// A MakespanKernel evaluates the replicas of a pipeline one by one where nothing couples them, else all
/// together. What is evaluated together is a group; its loads are a list of values, the columns.
class MakespanKernel {
 public:
  /// @throws Error (internal) if a shared rank computes something that is not the same for all dp ranks
  explicit MakespanKernel(const LoadPipeline& pipeline);

  int loads() const { return loads_; }
  /// Returns the pipeline's dp, or 1 where a shared rank or a load of microbatches couples the replicas.
  int groups() const { return dp_ / width_; }
  int columns() const { return columns_; }
  int group(int bin) const { return width_ == 1 ? bin % dp_ : 0; }
  /// Returns where a load of a bin is in its group; bins of a microbatch share a load of microbatches.
  int column(int load, int bin) const { return columns_of(bin)[load]; }
  std::span<const std::int32_t> columns_of(int bin) const {
    return {columns_of_.data() + static_cast<std::size_t>(bin) * loads_, static_cast<std::size_t>(loads_)};
  }

  /// Finds the makespan of one group. With smoothing s > 0 each maximum of a and b is that, plus (s - |a -
  /// b|)^2 / (4 s) where they are less than s apart: still convex and rising in both, but with a gradient
  /// that sees all paths that are nearly critical. By convexity smooth_s at other values is at least smooth_s
  /// + gradient * their difference.
  void evaluate(std::span<const double> values, double smoothing_s, CriticalPath& path) const;

 private:
  friend class MakespanLanes;

  struct Time {
    LoadTime time;
    std::int32_t column;  ///< -1: fixed
    double at(std::span<const double> values) const {
      return column < 0 ? time.fixed_s : time.at(values[column]);
    }
  };
  struct Last {
    std::int32_t node;
    std::int32_t place;
    double tail_s;
  };
  class Builder;

  void place_ends();
  double weigh_lasts(std::span<const double> ends, double smoothing_s, std::span<double> weights) const;

  int dp_;
  int loads_;
  int width_ = 1;  ///< dp ranks of a group
  int columns_ = 0;
  int places_ = 1;
  std::vector<std::int32_t> columns_of_;  ///< [bin][load]
  std::vector<Time> times_;               ///< the first is zero
  std::vector<std::int32_t>
      column_ends_;  ///< per column: its times are from the column before's end to its own
  std::vector<std::int32_t> column_times_;
  std::vector<MakespanNode>
      nodes_;  ///< so that nodes that follow each other rarely wait for each other; the first ends at 0
  std::vector<MakespanNode> lane_nodes_;  ///< the same with ends in a buffer of `places_`
  std::vector<Last> lasts_;
};

/// MakespanLanes are candidates that differ from one state of a group in a few columns.
class MakespanLanes {
 public:
  explicit MakespanLanes(const MakespanKernel& kernel);

  /// Gives all lanes these values, or this one in one column.
  void set(std::span<const double> values);
  void set(int column, double value);
  /// Gives one lane what was set() in others of the same pipeline; reset() must not follow.
  void set_lane(int lane, const MakespanLanes& other) {
    for (std::size_t t = 0; t < times_.size(); ++t) times_[t].value[lane] = other.base_[t];
  }
  /// Makes one lane differ from set() in one column, until the next reset().
  void change(int lane, int column, double value);
  /// Undoes all change()s.
  void reset();
  /// Returns the (smooth) makespans of all lanes, to within float rounding, with the same bytes everywhere.
  Lanes evaluate(double smoothing_s);

 private:
  std::span<const std::int32_t> times_of(int column) const;

  const MakespanKernel* kernel_;
  std::vector<float> base_;  ///< per time
  std::vector<Lanes> times_;
  std::vector<Lanes> ends_;
  std::vector<std::pair<std::int32_t, int>> changed_;  ///< time and lane
};

}  // namespace dflop
