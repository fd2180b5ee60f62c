// A MakespanState is an assignment during a search: the items of each bin, its loads, and the critical path
// of every group.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "solver/assignment_problem.hpp"
#include "solver/bins/cap_table.hpp"
#include "solver/makespan/kernel.hpp"

namespace dflop {

/// A Parcel has the items that leave a bin for another: up to two; -1 is none.
using Parcel = std::array<std::int32_t, 2>;
inline constexpr Parcel kNothing = {-1, -1};

/// In a BinExchange two bins exchange parcels, or all their items.
struct BinExchange {
  std::int32_t from = 0;
  std::int32_t to = 0;
  Parcel out = kNothing;
  Parcel in = kNothing;
  bool all = false;
};

/// A Reorder changes the order of a group's microbatches. With `shift`, the microbatch at `from` moves to
/// `to` and the microbatches between shift by one. Otherwise the microbatches at `from` and `to` swap places.
struct Reorder {
  int group = 0;
  int from = 0;
  int to = 0;
  bool shift = false;
};

class MakespanState {
 public:
  /// Starts from an assignment, the bin of each item. The problem and kernel must outlive the state.
  MakespanState(const AssignmentProblem& problem, const MakespanKernel& kernel,
                std::span<const std::int32_t> bin);

  /// Switches to another assignment.
  void set(std::span<const std::int32_t> bin);

  const MakespanKernel& kernel() const { return kernel_; }
  int bins() const { return problem_.bins; }
  std::span<const std::int32_t> bin() const { return bin_; }
  std::span<const std::int32_t> items_of(std::int32_t bin) const { return items_[bin]; }
  /// item_loads() and bin_loads() return what an item or all items of a bin add to each load.
  std::span<const double> item_loads(std::int32_t item) const { return row(item_loads_, item); }
  std::span<const double> bin_loads(std::int32_t bin) const { return row(bin_loads_, bin); }
  /// Sets `loads` to what bin `from` loses and bin `to` gains by an exchange, per load.
  void moved_loads(const BinExchange& exchange, std::span<double> loads) const;
  /// values() and gradient() return a group's loads and the gradient of its critical path, per column.
  std::span<const double> values(int group) const { return values_[group]; }
  std::span<const double> gradient(int group) const { return paths_[group].gradient; }
  /// smooth_s() returns the smooth makespan of a group, slowest() the group with the largest one, and
  /// makespan_s() the true makespan of all groups.
  double smooth_s(int group) const { return paths_[group].smooth_s; }
  int slowest() const;
  double makespan_s() const;

  double smoothing_s() const { return smoothing_s_; }
  void set_smoothing(double smoothing_s) {
    smoothing_s_ = smoothing_s;
    for (int q = 0; q < kernel_.groups(); ++q) evaluate(q);
  }

  /// Returns whether, after an exchange, the caps are still obeyed and no bin is empty unless allowed. The
  /// current assignment must obey the caps.
  bool allows(const BinExchange& exchange) const;
  void apply(const BinExchange& exchange);
  /// Applies a change if the smooth makespans of its groups then are below `less_s` and the caps are obeyed;
  /// otherwise leaves the state unchanged. Returns whether it was applied.
  bool apply_if(const BinExchange& exchange, double less_s);
  bool apply_if(const Reorder& reorder, double less_s);

 private:
  template <typename T>
  std::span<const T> row(const std::vector<T>& table, std::int32_t index) const {
    return {table.data() + static_cast<std::size_t>(index) * loads_, loads_};
  }

  double moved_weight(int cap, const BinExchange& exchange) const;
  bool obeys_caps() const;
  void put(const BinExchange& exchange);
  void give(std::int32_t from, std::int32_t to, const Parcel& parcel);
  void swap_contents(std::int32_t a, std::int32_t b);
  void put(const Reorder& reorder);
  void sum_loads(std::int32_t bin);
  void evaluate(int group) { kernel_.evaluate(values_[group], smoothing_s_, paths_[group]); }

  const BinProblem& problem_;
  const MakespanKernel& kernel_;
  std::size_t loads_;
  CapTable caps_;
  double smoothing_s_ = 0;
  std::vector<double> item_loads_;  // [item][load]
  std::vector<double> bin_loads_;   // [bin][load]
  std::vector<std::int32_t> bin_;
  std::vector<std::vector<std::int32_t>> items_;  // per bin
  std::vector<std::vector<double>> values_;       // per group and column
  std::vector<CriticalPath> paths_;               // per group
};

}  // namespace dflop
