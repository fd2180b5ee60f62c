#include "solver/planners/dflop/coarse_durations.hpp"

#include <utility>

#include "core/support/parallel.hpp"

namespace dflop {

CoarseDurations::CoarseDurations(const std::vector<std::int64_t>& most_shares, const Sum& sum)
    : seconds_(most_shares.size()) {
  std::vector<std::pair<int, int>> cells;
  for (std::size_t kind = 0; kind < most_shares.size(); ++kind) {
    const int last = share_grid::index_at_least(most_shares[kind]);
    seconds_[kind].resize(last + 1);
    for (int index = 1; index <= last; ++index) cells.emplace_back(static_cast<int>(kind), index);
  }
  parallel_for(cells.size(), [&](std::size_t c) {
    const auto [kind, index] = cells[c];
    seconds_[kind][index] = sum(kind, share_grid::value(index));
  });
}

}  // namespace dflop
