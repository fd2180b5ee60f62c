// in_the_way() says which of the user's options prevent any plan of a search from fitting.
#pragma once

#include <string>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// Returns a text such as "; a plan may fit without --tp and --layout". It lists each option of the request
/// whose removal, by itself, may let some plan of this part of the search space fit. Empty if there is none.
std::string in_the_way(const PlanRequest& request, SpacePart part);

}  // namespace dflop
