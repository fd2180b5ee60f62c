// These functions declare and read the options of a plan that are not the choice of a planner.
#pragma once

#include <string>

#include "core/iteration/planner.hpp"
#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Adds --setting and the options that override its parts: --pipeline-schedule, --chunks, --recompute,
/// --gradient-bucket, --placement, --optimizer-states, --reshard, --zero1, --sequence-parallel and the
/// --no-... forms of the last two.
void add_plan_options(Options& options);
/// Returns whether a part of the plan is not the planner's choice: its option was given, or the setting fixes
/// it.
bool is_fixed(const Values& values, const std::string& option);
/// Reads the options of add_plan_options(): the setting, overridden by given options. With
/// `may_spread_encoder` the order may be one for colocated plans, which only the planner search makes.
/// @throws Error (usage)
PlanOptions read_plan_options(const Values& values, bool may_spread_encoder = false);
/// Reads the options of add_wish_options(). @throws Error (usage) for numbers below 1
PlanWish read_wish(const Values& values);
/// Returns whether an option fixes an order, tp, pp, dp or microbatches.
bool asks_for_parts(const Values& values);

}  // namespace dflop
