#include "solver/duration_table.hpp"

#include <algorithm>
#include <utility>

#include "solver/parallel.hpp"

namespace dflop {

DurationTable::DurationTable(std::span<const Workload> items, Duration duration)
    : duration_(std::move(duration)), entries_of_first_{0} {
  for (const Workload& item : items) {
    const auto known = std::find(workloads_.begin(), workloads_.end(), item);
    entry_.push_back(static_cast<std::size_t>(known - workloads_.begin()));
    if (known == workloads_.end()) workloads_.push_back(item);
    entries_of_first_.push_back(workloads_.size());
  }
}

const DurationTable::Row& DurationTable::request(int pipeline, std::int64_t shares, std::size_t items) {
  const std::uint64_t key = static_cast<std::uint64_t>(pipeline) << 40 | static_cast<std::uint64_t>(shares);
  Row& row = rows_.try_emplace(key, Row{pipeline, shares}).first->second;
  const std::size_t entries = entries_of_first_[items];
  if (entries > row.wanted) {
    if (row.wanted == row.seconds.size()) unfilled_.push_back(&row);
    row.wanted = entries;
  }
  return row;
}

void DurationTable::fill() {
  parallel_for(unfilled_.size(), [&](std::size_t r) {
    Row& row = *unfilled_[r];
    row.seconds.reserve(row.wanted);
    while (row.seconds.size() < row.wanted) {
      row.seconds.push_back(duration_(row.pipeline, row.shares, workloads_[row.seconds.size()]));
    }
  });
  unfilled_.clear();
}

}  // namespace dflop
