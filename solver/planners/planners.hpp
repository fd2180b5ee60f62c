// The planners by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/iteration/planner.hpp"

namespace dflop {

/// "dflop" is the data-aware optimizer (solver/planners/dflop/planner.hpp), "megatron" and "pytorch" are the
/// best uniform configurations (solver/planners/uniform/planner.hpp).
/// @throws Error (usage) for another name.
std::unique_ptr<Planner> make_planner(std::string_view name);

/// In the order in which they are to be listed.
std::vector<std::string_view> planner_names();

}  // namespace dflop
