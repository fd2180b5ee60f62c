// search_part() searches the plans of one part of a search space.
#pragma once

#include <algorithm>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// If a search has shared and other plans, shared plans get an additional 1 / kBudgetOfShared of the budget,
/// or this fraction of the time limit.
inline constexpr int kBudgetOfShared = 5;

inline bool looks_for_shared_alone(const PlanRequest& request) {
  return request.search.layouts == std::vector{Layout::shared};
}

/// Searches one part of a request's search space, as solver/planners/search/planner.hpp describes. Plans that
/// take `known_s` or longer are ignored.
PlanResult search_part(const PlanRequest& request, SpacePart part, double known_s);

}  // namespace dflop
