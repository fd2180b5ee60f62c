// Files keep orders of pipeline steps: schema "dflop.order", version 1.
#pragma once

#include <string>
#include <string_view>

#include "core/order/order_check.hpp"

namespace dflop {

/// Returns {"schema": "dflop.order", "version": 1, "placement": "round-robin" or "v", "ranks": [["F0", "B0"],
/// ...]}: a list of steps for each pipeline rank, named as by step_name(). The placement stands where ranks
/// have several chunks.
std::string to_json(const PipelineOrder& order);

/// Reads an order for a pipeline of this shape, and checks it. Without the key "placement" it is the shape's.
/// @throws Error (input) naming the key, as "ranks[2][7]" for a step.
PipelineOrder parse_order(std::string_view json, const std::string& file, const PipelineShape& shape);

}  // namespace dflop
