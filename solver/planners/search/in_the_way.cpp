#include "solver/planners/search/in_the_way.hpp"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/names.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/search/bound.hpp"
#include "solver/planners/search/families.hpp"

namespace dflop {

std::string in_the_way(const PlanRequest& request, SpacePart part) {
  std::vector<std::string> names;
  const auto try_without = [&](std::string_view name, const auto& open) {
    PlanRequest other = request;
    if (!open(other.search)) return;
    const auto may_fit = [&](SpacePart of) {
      const SearchSpace space(other, of);
      SearchBounds bounds(other);
      ClosestMiss closest;
      return PlanFamilies(other, space, bounds, closest).count() > 0;
    };
    // If the search is only for shared plans, other plans are possible without that layout.
    if (may_fit(part) || (part == SpacePart::shared && may_fit(SpacePart::unshared)))
      names.push_back("--" + std::string(name));
  };
  PlanWish wish = request.search.wish;
  for (const auto& [name, value] : parts_of(wish)) {
    const std::optional<int> wished = std::exchange(*value, std::nullopt);
    if (wished) try_without(name, [&](SearchOptions& search) { return search.wish = wish, true; });
    *value = wished;
  }
  const auto clear = [](auto SearchOptions::*list) {
    return [list](SearchOptions& search) { return !std::exchange(search.*list, {}).empty(); };
  };
  try_without("layout", clear(&SearchOptions::layouts));
  try_without("pipeline-schedule", clear(&SearchOptions::orders));
  try_without("recompute", clear(&SearchOptions::recomputations));
  return names.empty() ? "" : "; a plan may fit without " + listed({names.begin(), names.end()});
}

}  // namespace dflop
