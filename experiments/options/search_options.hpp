// These functions read the options of the planner search.
#pragma once

#include <vector>

#include "core/iteration/planner.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/target.hpp"

namespace dflop {

/// Returns the options of add_search_options() and add_wish_options(), which all planners except the search
/// ignore.
const std::vector<const char*>& search_only_options();
/// Reads the options of add_search_options(). The planner chooses order, recomputation, placement and
/// gradient buckets unless they are fixed. If asks_for_parts(), the search makes shared plans only with
/// --layout, so that all compared plans use GPUs in the same way.
SearchOptions read_search_options(const Values& values);
/// Reads --no-padded-heads. If it was given, excludes from the search every tp that would pad the model's
/// heads.
void read_padding(const Values& values, const ModelSpec& model, SearchOptions& search);
/// Reads the plans of --seed-plans, from which a search starts. Plans that do not fit the model, the cluster
/// or gbs are left out, with a note.
/// @throws Error (input) for a file that is not a plan, or a plan for another model
std::vector<Plan> read_seed_plans(const Values& values, const Target& target, int gbs);

}  // namespace dflop
