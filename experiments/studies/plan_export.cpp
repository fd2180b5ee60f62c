#include "experiments/studies/plan_export.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "experiments/cli/say.hpp"
#include "traces/files/megatron.hpp"

namespace dflop {
namespace {

struct PlanForm {
  std::string_view name;
  ExportedPlan (*write)(const Plan& plan, const ModelSpec& model, const std::string& where);
};

constexpr std::array<PlanForm, 2> kPlanForms = {
    {{"megatron-mimo", to_megatron_mimo}, {"megatron-lm", to_megatron_lm}}};

}  // namespace

std::vector<std::string_view> plan_form_names() {
  std::vector<std::string_view> names;
  for (const PlanForm& form : kPlanForms) names.push_back(form.name);
  return names;
}

std::string exported_plan(const Plan& plan, const ModelSpec& model, const std::string& form,
                          const std::string& where) {
  const auto* const known = std::find_if(kPlanForms.begin(), kPlanForms.end(),
                                         [&](const PlanForm& row) { return row.name == form; });
  if (known == kPlanForms.end()) throw Error(ErrorKind::internal, "no form of plans is named " + form);
  const ExportedPlan exported = known->write(plan, model, where);
  for (const std::string& line : exported.unsaid) say("dflop: not in {}: {}\n", form, line);
  return exported.text;
}

std::string_view form_of(const Plan& plan) {
  return plan.layout == Layout::uniform ? "megatron-lm" : "megatron-mimo";
}

}  // namespace dflop
