#include "experiments/checks/paper/hand_set.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "solver/planners/uniform/planner.hpp"

namespace dflop {
namespace {

constexpr std::array<std::string_view, 2> kHandSet = {"pytorch-hand", "megatron-hand"};
constexpr int kDrawnStages = 4;  // as in Figure 1

/// Returns whether the encoder has the first of four stages to itself.
bool is_as_drawn(const Plan& plan) {
  return plan.llm.pp == kDrawnStages && plan.llm.layers.front() == 0;
}

/// Returns the candidates that a person would try by hand, in that order.
std::vector<Plan> tried_by_hand(std::string_view name, const PlanRequest& request) {
  const bool megatron = name == "megatron-hand";
  std::vector<Plan> plans =
      uniform_candidates(request, megatron ? UniformSplit::encoder_first : UniformSplit::by_count);
  std::erase_if(plans, [&](const Plan& plan) {
    return plan.microbatches != request.gbs / plan.llm.dp || (megatron && !is_as_drawn(plan));
  });
  std::ranges::stable_sort(
      plans, {}, [](const Plan& plan) { return std::pair(plan.llm.tp * plan.llm.pp, -plan.llm.tp); });
  return plans;
}

}  // namespace

std::span<const std::string_view> hand_set_names() {
  return kHandSet;
}

System run_hand_set(std::string_view name, const Target& target, const ComparisonInput& input) {
  const PlanRequest request{target.problem(), target.executor, input.gbs,       input.samples, input.batches,
                            input.seed,       input.options,   /*progress=*/{}, input.search};
  System system{std::string(name), std::string(name), SchedulerChoice{"random"}};
  system.planned.infeasible_reason = "no such cut of the layers";
  for (Plan& plan : tried_by_hand(name, request)) {
    ++system.planned.candidates;
    ScheduledRun run = schedule_and_evaluate(plan, target, input.batches, system.scheduler, input.seed, 1);
    if (!run.evaluation) continue;
    if (const auto problem = out_of_memory(run.evaluation->timelines, target.cluster)) {
      system.planned.infeasible_reason = describe(plan) + ": " + *problem;
      continue;
    }
    plan.planner = name;
    system.planned.plan = std::move(plan);
    system.schedule = std::move(run.schedule);
    system.evaluation = std::move(run.evaluation);
    break;
  }
  return system;
}

}  // namespace dflop
