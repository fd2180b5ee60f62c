// Plans on disk: schema "dflop.plan", version 1.
#pragma once

#include <string>
#include <string_view>

#include "core/plan.hpp"

namespace dflop {

std::string to_json(const Plan& plan);

/// Reads a plan. Whether it fits a model and a cluster is for validate() of core/plan.hpp.
/// @throws Error (input) naming the key.
Plan parse_plan(std::string_view json, const std::string& file);

}  // namespace dflop
