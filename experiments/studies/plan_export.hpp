// This file exports plans in the formats of other training programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// Returns the names of the export formats, such as "megatron-mimo".
std::vector<std::string_view> plan_form_names();

/// Returns a plan for the model as text in the format `form`. Prints to standard error which settings the
/// format cannot express. `where` names the plan in errors.
/// @throws Error (infeasible) if the plan cannot run in that format.
std::string exported_plan(const Plan& plan, const ModelSpec& model, const std::string& form,
                          const std::string& where);

/// Returns the name of the format that can express a plan's layout.
std::string_view form_of(const Plan& plan);

}  // namespace dflop
