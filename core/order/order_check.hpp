// This header names and checks orders of pipeline steps, whoever made them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/order/pipeline_order.hpp"

namespace dflop {

/// Returns "F3", "B3", "I3" (input part), "W3" (weight part) of microbatch 3; "F3.1" on the rank's chunk 1,
/// "F3.e" on the encoder of encoder_in_bubbles.
std::string step_name(const PipelineShape& shape, const OrderStep& step);

/// Returns the step that `name` stands for on a rank; nothing where it is no such name, or the microbatch or
/// chunk is out of range. "F3.0" is the same as "F3".
std::optional<OrderStep> step_from_name(const PipelineShape& shape, int rank, std::string_view name);

/// Checks that every rank runs each microbatch of its stages once, forward and then backward (whole, or the
/// input part before the weight part), that each stage takes what comes from another rank in the order in
/// which that sends it, and that no step waits for ever. Programs of such an order are accepted by verify().
/// `where` is the order's place for errors.
/// @throws Error (input) naming rank and position as the key (of schema "dflop.order") "ranks[2][7]".
void validate(const PipelineOrder& order, const std::string& where = "order");

}  // namespace dflop
