// Microbatch durations of one module, worked out when first asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/sample.hpp"

namespace dflop {

/// Work that stands for each of so many items.
struct RepeatedLoad {
  int items = 1;
  Workload work;

  bool operator==(const RepeatedLoad&) const = default;
};

/// Durations of microbatches that are filled with copies of one load, for every kind of pipeline of a module
/// and every number of shares (microbatches * dp) that the global batch is cut into. Equal loads have one
/// entry.
class DurationTable {
 public:
  /// The duration of one load on one kind of pipeline. Called from several threads at once.
  using Duration = std::function<double(int kind, std::int64_t shares, const RepeatedLoad& load)>;

  struct Row {
    int kind = 0;
    std::int64_t shares = 0;
    std::vector<double> seconds{};  // per different load, in the order of their first ones
  };

  DurationTable(std::span<const RepeatedLoad> loads, Duration duration);

  /// Asks for the durations of all loads. They are there after fill(); the reference stays valid.
  const Row& request(int kind, std::int64_t shares);

  /// Works out, in parallel, all that has been asked for.
  void fill();

  double at(const Row& row, std::size_t load) const { return row.seconds[entry_[load]]; }

 private:
  Duration duration_;
  std::vector<RepeatedLoad> loads_;  // different ones
  std::vector<std::size_t> entry_;   // per load, into loads_
  std::unordered_map<std::uint64_t, Row> rows_;
  std::vector<Row*> unfilled_;
};

}  // namespace dflop
