// The planners by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/planner.hpp"

namespace dflop {

/// "dflop" is the data-aware optimizer (solver/dflop_planner.hpp), "megatron" and "pytorch" are the best
/// uniform configurations (solver/uniform_planner.hpp).
/// @throws Error (usage) for another name.
std::unique_ptr<Planner> make_planner(std::string_view name);

/// In the order in which they are to be listed.
std::vector<std::string_view> planner_names();

}  // namespace dflop
