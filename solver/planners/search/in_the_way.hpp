// Says which wish stands in the way where no plan of a search fits.
#pragma once

#include <string>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// Returns "; a plan may fit without --tp and --layout": the options of the request without which, one at a
/// time, some plan of this part of the space may fit. Empty where there is none.
std::string in_the_way(const PlanRequest& request, SpacePart part);

}  // namespace dflop
