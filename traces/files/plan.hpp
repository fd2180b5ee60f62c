// Files keep plans: schema "dflop.plan", version 1. Keys that came later (chunks, gradient_bucket_bytes,
// placement) are written only where they differ from their defaults, so that older files and programs stay
// good for all plans that they can express.
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
