#include "solver/planners/dflop/duration_table.hpp"

#include <algorithm>
#include <utility>

#include "core/support/parallel.hpp"

namespace dflop {

DurationTable::DurationTable(std::span<const RepeatedLoad> loads, Duration duration)
    : duration_(std::move(duration)) {
  for (const RepeatedLoad& load : loads) {
    const auto known = std::find(loads_.begin(), loads_.end(), load);
    entry_.push_back(static_cast<std::size_t>(known - loads_.begin()));
    if (known == loads_.end()) loads_.push_back(load);
  }
}

const DurationTable::Row& DurationTable::request(int kind, std::int64_t shares) {
  const std::uint64_t key = static_cast<std::uint64_t>(kind) << 40 | static_cast<std::uint64_t>(shares);
  const auto [place, is_new] = rows_.try_emplace(key, Row{kind, shares});
  if (is_new) unfilled_.push_back(&place->second);
  return place->second;
}

void DurationTable::fill() {
  parallel_for(unfilled_.size(), [&](std::size_t r) {
    Row& row = *unfilled_[r];
    row.seconds.reserve(loads_.size());
    for (const RepeatedLoad& load : loads_) row.seconds.push_back(duration_(row.kind, row.shares, load));
  });
  unfilled_.clear();
}

}  // namespace dflop
