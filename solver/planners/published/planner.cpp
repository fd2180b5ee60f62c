#include "solver/planners/published/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "core/order/pipeline_order.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/published/rules.hpp"

namespace dflop {
namespace {

/// Returns why the published optimizer has no choice; empty if it may have one.
std::string reason_against(const PlanRequest& request) {
  if (std::string reason = reason_against_apart(request); !reason.empty()) return reason;
  const auto none_has = [&](Workload (Sample::*work)() const) {
    return std::ranges::all_of(request.profile, [&](const Sample& item) { return (item.*work)().empty(); });
  };
  if (request.model.second)
    return "the published method plans models with one encoder; planner search plans those with two";
  if (none_has(&Sample::encoder)) return "no item of the data has work for the encoder";
  if (none_has(&Sample::llm)) return "no item of the data has work for the LLM";
  return "";
}

}  // namespace

PlanResult PublishedPlanner::plan(const PlanRequest& request) const {
  check_disaggregated_request(request, name());
  PlanResult result;
  result.infeasible_reason = reason_against(request);
  if (!result.infeasible_reason.empty()) return result;
  const PublishedProfile profile = published_profile(published_tables(request), request.model);
  const PublishedProblem problem{request.cluster.gpus(), request.gbs,
                                 static_cast<double>(request.cluster.gpu.memory.count)};
  const bool released = reading_ == PublishedReading::released;
  const PublishedChoices found =
      released ? released_choice(profile, problem) : printed_choice(profile, problem);
  result.candidates = found.candidates;
  if (!found.choice) {
    const std::string rule =
        released ? fmt::format(
                       "1.25 x (10 bytes per parameter, and activations and loss of the largest item: "
                       "{:.0f} tiles and {:.0f} tokens)",
                       profile.encoder.most_units, profile.llm.most_units)
                 : "10 bytes per parameter, and activations and loss of the mean microbatch";
    result.infeasible_reason = fmt::format(
        "by the published memory rule ({}) no pair of encoder and LLM fits the {:.1f} GiB of a GPU", rule,
        problem.memory / kGib);
    return result;
  }
  Plan plan = blank_plan(request, name());
  plan.layout = Layout::disaggregated;
  plan.objective = Objective::published;
  plan.encoder = found.choice->encoder;
  plan.llm = found.choice->llm;
  plan.encoder.layers = split_layers(request.model.encoder.layers, plan.encoder.pp);
  plan.llm.layers = split_layers(request.model.llm.layers, plan.llm.pp);
  plan.microbatches = found.choice->microbatches;
  result.objective = Seconds(found.choice->seconds);
  result.plan = std::move(plan);
  return result;
}

}  // namespace dflop
