// search_part() searches the plans of one part of a space.
#pragma once

#include <algorithm>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// Shared plans have this part of the budget beside the others, or of the time, where there are others.
inline constexpr int kBudgetOfShared = 5;

inline bool looks_for_shared_alone(const PlanRequest& request) {
  return request.search.layouts == std::vector{Layout::shared};
}

/// Searches one part of a request's space, as solver/planners/search/planner.hpp says. Plans that take no
/// less than `known_s` are of no interest.
PlanResult search_part(const PlanRequest& request, SpacePart part, double known_s);

}  // namespace dflop
