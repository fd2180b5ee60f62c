#include "core/iteration/planner.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

namespace dflop {
namespace {

constexpr std::array<std::string_view, 3> kObjectives = {"mean", "p95", "cvar"};

}  // namespace

std::string_view to_string(PlanObjective objective) {
  return kObjectives[static_cast<std::size_t>(objective)];
}

std::optional<PlanObjective> plan_objective_from_string(std::string_view name) {
  const auto it = std::find(kObjectives.begin(), kObjectives.end(), name);
  if (it == kObjectives.end()) return std::nullopt;
  return static_cast<PlanObjective>(it - kObjectives.begin());
}

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
