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

}  // namespace dflop
