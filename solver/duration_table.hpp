// Microbatch durations of one module, worked out when first asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/cost_model.hpp"

namespace dflop {

/// Durations of microbatches that are filled with copies of one item, for every pipeline of a module and
/// every number of shares (microbatches * dp) that the global batch is cut into. A row holds the durations of
/// the first items, as many as were asked for so far; items with the same workload have one entry.
class DurationTable {
 public:
  /// The duration of one workload on one pipeline. Called from several threads at once.
  using Duration = std::function<double(int pipeline, std::int64_t shares, const Workload& item)>;

  struct Row {
    int pipeline = 0;
    std::int64_t shares = 0;
    std::size_t wanted = 0;         // entries that have been asked for
    std::vector<double> seconds{};  // per different workload, in the order of their first items
  };

  DurationTable(std::span<const Workload> items, Duration duration);

  /// Asks for the durations of the first `items` items. They are there after fill(); the reference stays
  /// valid.
  const Row& request(int pipeline, std::int64_t shares, std::size_t items);

  /// Works out, in parallel, all that has been asked for.
  void fill();

  double at(const Row& row, std::size_t item) const { return row.seconds[entry_[item]]; }

 private:
  Duration duration_;
  std::vector<Workload> workloads_;            // different ones, in the order of their first items
  std::vector<std::size_t> entry_;             // per item, into workloads_
  std::vector<std::size_t> entries_of_first_;  // [n]: different workloads among the first n items
  std::unordered_map<std::uint64_t, Row> rows_;
  std::vector<Row*> unfilled_;
};

}  // namespace dflop
