// Plans are exported in the forms of other programs that train.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// Returns the names of the forms, as "megatron-mimo".
std::vector<std::string_view> plan_form_names();

/// Returns a plan of the model in the form of that name, and lists on standard error what the form cannot say
/// of it. `where` is the plan's place for errors.
/// @throws Error (infeasible) where the plan does not run in that form.
std::string exported_plan(const Plan& plan, const ModelSpec& model, const std::string& form,
                          const std::string& where);

/// Returns the form that suits a plan's layout.
std::string_view form_of(const Plan& plan);

}  // namespace dflop
