// A MakespanKernel is a LoadPipeline compiled for a search. It computes the makespans of many candidates at
// once, and the gradient of a makespan with respect to the loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "solver/lanes.hpp"
#include "solver/load_pipeline.hpp"

namespace dflop {

/// A CriticalPath has the makespan of a group of replicas and its gradient with respect to the group's loads.
/// Without smoothing, it is the gradient of the length of one longest path.
struct CriticalPath {
  double makespan_s = 0;
  double smooth_s = 0;           ///< at least the makespan; equal to it without smoothing
  std::vector<double> gradient;  ///< of smooth_s, per column (MakespanKernel)
};

/// A MakespanNode is a step, or the wait of a shared step for one dp rank. It ends at max(end of `previous`,
/// end of `after` + `message`) + `duration`. All members are indices: of ends, or of times.
struct MakespanNode {
  std::int32_t previous;
  std::int32_t after;
  std::int32_t message;
  std::int32_t duration;
  std::int32_t end;
};

/// A MakespanKernel evaluates the replicas of a pipeline separately if nothing couples them, otherwise all
/// together. Replicas that are evaluated together form a group. The loads of a group are a list of values; a
/// column is a position in this list.
class MakespanKernel {
 public:
  /// @throws Error (internal) if the duration of a step on a shared rank depends on a load of one dp rank
  explicit MakespanKernel(const LoadPipeline& pipeline);

  int loads() const { return loads_; }
  /// Returns the number of groups: the pipeline's dp, or 1 if a shared rank or a load of microbatches couples
  /// the replicas.
  int groups() const { return dp_ / width_; }
  int columns() const { return columns_; }
  int group(int bin) const { return width_ == 1 ? bin % dp_ : 0; }
  /// Returns the column of a bin's load in its group; bins of a microbatch share a load of microbatches.
  int column(int load, int bin) const { return columns_of(bin)[load]; }
  std::span<const std::int32_t> columns_of(int bin) const {
    return {columns_of_.data() + static_cast<std::size_t>(bin) * loads_, static_cast<std::size_t>(loads_)};
  }

  /// Computes the makespan of one group. With smoothing s > 0, (s - |a - b|)^2 / (4 s) is added to each
  /// maximum of a and b that are less than s apart. The result is still convex and nondecreasing in a and b,
  /// but its gradient includes all paths that are nearly critical. By convexity, smooth_s at different values
  /// is at least smooth_s + gradient * the difference of the values.
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
  /// per column: the end of its range in column_times_, which begins at the previous column's end
  std::vector<std::int32_t> column_ends_;
  std::vector<std::int32_t> column_times_;
  /// ordered so that consecutive nodes rarely wait for each other; the first node ends at 0
  std::vector<MakespanNode> nodes_;
  std::vector<MakespanNode> lane_nodes_;  ///< nodes_, with their ends in a buffer of `places_`
  std::vector<Last> lasts_;
};

/// MakespanLanes are candidates that differ from one state of a group in a few columns.
class MakespanLanes {
 public:
  explicit MakespanLanes(const MakespanKernel& kernel);

  /// Sets all lanes to these values, or one column of all lanes to this value.
  void set(std::span<const double> values);
  void set(int column, double value);
  /// Copies to one lane the values that were set() in `other`, which must have the same kernel. Do not call
  /// reset() afterward.
  void set_lane(int lane, const MakespanLanes& other) {
    for (std::size_t t = 0; t < times_.size(); ++t) times_[t].value[lane] = other.base_[t];
  }
  /// Changes one column of one lane, until the next reset().
  void change(int lane, int column, double value);
  /// Undoes all change()s.
  void reset();
  /// Returns the (smooth) makespans of all lanes. They are accurate to float rounding and bit-identical on
  /// every machine.
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
