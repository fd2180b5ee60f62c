#include "core/iteration/planner.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace dflop {

Seconds objective_value(PlanObjective objective, std::span<const Seconds> iterations) {
  std::vector<Seconds> falling(iterations.begin(), iterations.end());
  const std::size_t count = falling.size();
  std::size_t counted = count;
  if (objective != PlanObjective::mean) {
    std::sort(falling.begin(), falling.end(), std::greater<>());
    if (objective == PlanObjective::p95) return falling[count - (95 * count + 99) / 100];
    counted = (count + 3) / 4;
  }
  const auto end = falling.begin() + static_cast<std::ptrdiff_t>(counted);
  return std::accumulate(falling.begin(), end, Seconds(0)) / static_cast<double>(counted);
}

RankShares rank_shares(const Timeline& timeline) {
  Seconds busy{0};
  Seconds busiest{0};
  Seconds idle{0};
  Seconds wait{0};
  int ranks = 0;
  for (const GroupUsage& group : timeline.groups) {
    ranks += group.ranks;
    busiest = std::max(busiest, Seconds(group.busy));
    busy += group.ranks * Seconds(group.busy);
    idle += group.ranks * Seconds(group.bubble);
    wait += group.ranks * Seconds(group.wait);
  }
  const Seconds imbalance = std::min(busiest - busy / ranks, idle / ranks);
  return {busy / ranks, imbalance, idle / ranks - imbalance, wait / ranks};
}

}  // namespace dflop
