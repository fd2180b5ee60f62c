// These functions declare and read the options that fix settings of a plan instead of leaving them to the
// planner.
#pragma once

#include <string>

#include "core/iteration/planner.hpp"
#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Adds --setting and the options that override its parts: --pipeline-schedule, --chunks, --recompute,
/// --gradient-bucket, --placement, --optimizer-states, --reshard, --zero1, --sequence-parallel and the
/// --no-... forms of the last two.
void add_plan_options(Options& options);
/// Returns whether the planner may not choose the value of `option`: the option was given, or --setting fixes
/// all values.
bool is_fixed(const Values& values, const std::string& option);
/// Reads the options of add_plan_options(): given options override the values of --setting. If `may_search`,
/// the planner search may make the plan, and does so if the command has no option --planner: its order for
/// colocated plans is accepted, and an order with several chunks has a default number of them.
/// @throws Error (usage)
PlanOptions read_plan_options(const Values& values, bool may_search = false);
/// Reads the options of add_wish_options(). @throws Error (usage) for numbers below 1
PlanWish read_wish(const Values& values);
/// Returns whether an option fixes the pipeline order, a tp, pp or dp, or the number of microbatches.
bool asks_for_parts(const Values& values);

}  // namespace dflop
