#include "solver/planners/mimo/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "solver/plan_problem/module_seconds.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/trials/candidates.hpp"

namespace dflop {
namespace {

constexpr std::size_t kRaced = 768;  // candidates that run at a time

bool is_power_of_two(int number) {
  return (number & (number - 1)) == 0;
}

/// Returns the parallelisms of one module on this many GPUs.
std::vector<ModulePlan> modules_on(const PlanRequest& request, int gpus, int layers) {
  std::vector<ModulePlan> modules = module_plans(request.cluster, gpus, layers, request.gbs);
  std::erase_if(modules, [](const ModulePlan& m) { return !is_power_of_two(m.tp); });
  for (ModulePlan& module : modules) module.layers = split_layers(layers, module.pp);
  return modules;
}

bool can_pair(const PlanRequest& request, const ModulePlan& encoder, const ModulePlan& llm) {
  const bool divides = encoder.dp % llm.dp == 0 || llm.dp % encoder.dp == 0;
  const bool aligned = encoder.ranks() % llm.tp == 0;  // tp groups stay inside nodes
  const auto& can_split = request.search.can_split;
  return divides && aligned && request.gbs % llm.dp == 0 && (!can_split || can_split(encoder.tp, llm.tp));
}

}  // namespace

std::vector<Plan> mimo_candidates(const PlanRequest& request) {
  Plan plan = blank_plan(request, MimoPlanner().name());
  plan.layout = Layout::disaggregated;
  plan.order = OrderKind::one_f_one_b;
  plan.chunks = 1;
  plan.share_rule = ShareRule::count;
  std::vector<Plan> candidates;
  for (int gpus = 1; gpus < request.cluster.gpus(); ++gpus) {
    const auto llms = modules_on(request, request.cluster.gpus() - gpus, request.model.llm.layers);
    for (const ModulePlan& encoder : modules_on(request, gpus, request.model.encoder.layers)) {
      for (const ModulePlan& llm : llms) {
        if (!can_pair(request, encoder, llm)) continue;
        plan.encoder = encoder;
        plan.llm = llm;
        for (const int microbatches : divisors(request.gbs / llm.dp)) {
          if (request.gbs / microbatches % encoder.dp != 0) continue;
          plan.microbatches = microbatches;
          candidates.push_back(plan);
        }
      }
    }
  }
  return candidates;
}

std::vector<Plan> by_estimate(const PlanRequest& request, std::vector<Plan> candidates) {
  const Batch& batch = request.batches.front();
  std::map<std::pair<int, double>, ModuleSeconds> known;  // by tp and samples
  const auto times = [&](int tp, double samples) -> const ModuleSeconds& {
    const auto [time, is_new] = known.try_emplace({tp, samples});
    if (is_new) time->second = mean_module_seconds(request, batch, tp, samples);
    return time->second;
  };
  const auto estimate = [&](const Plan& plan) {
    const auto slowest = [&](const ModulePlan& module, double ModuleSeconds::*seconds, int layers) {
      const double samples = static_cast<double>(request.gbs) / plan.microbatches / module.dp;
      return times(module.tp, samples).*seconds * module.layers.front() / layers;
    };
    const double encoder = slowest(plan.encoder, &ModuleSeconds::encoder, request.model.encoder.layers);
    const double llm = slowest(plan.llm, &ModuleSeconds::llm, request.model.llm.layers);
    return (plan.microbatches + plan.encoder.pp + plan.llm.pp - 1) * std::max(encoder, llm);
  };
  std::vector<std::pair<double, std::size_t>> ranked;
  for (std::size_t c = 0; c < candidates.size(); ++c) ranked.emplace_back(estimate(candidates[c]), c);
  std::ranges::sort(ranked);
  std::vector<Plan> sorted;
  for (const auto& [seconds, c] : ranked) sorted.push_back(std::move(candidates[c]));
  return sorted;
}

PlanResult MimoPlanner::plan(const PlanRequest& request) const {
  PlanResult result;
  check_batches(request);
  result.infeasible_reason = reason_against_apart(request);
  if (result.infeasible_reason.empty() && !may_be(request.search.orders, OrderKind::one_f_one_b)) {
    result.infeasible_reason = fmt::format("Megatron-LM's MIMO runs only 1f1b, but the order is fixed to {}",
                                           to_string(request.search.orders.front()));
  }
  if (!result.infeasible_reason.empty()) return result;
  std::vector<Plan> candidates = mimo_candidates(request);
  if (candidates.empty()) {
    result.infeasible_reason = fmt::format(
        "no division of the {} GPUs gives encoder and LLM a tp that is a power of two, dp's that divide each "
        "other and stages with layers, with an LLM dp that divides the global batch of {}",
        request.cluster.gpus(), request.gbs);
    return result;
  }
  candidates = by_estimate(request, std::move(candidates));
  const Bytes usable = request.cluster.gpu.usable_memory();
  const auto end = std::stable_partition(candidates.begin(), candidates.end(), [&](const Plan& plan) {
    return largest_model_state(request, plan) <= usable;
  });
  auto fitting = static_cast<std::size_t>(end - candidates.begin());
  if (fitting == 0) fitting = std::min(candidates.size(), kRaced);  // the race says how much they need
  CandidateRace race(request);
  for (std::size_t first = 0; first < fitting && race.leaders(1).empty(); first += kRaced) {
    const auto begin = candidates.begin() + static_cast<std::ptrdiff_t>(first);
    race.add({begin, begin + static_cast<std::ptrdiff_t>(std::min(kRaced, fitting - first))});
  }
  result = race.best();
  result.candidates = static_cast<std::int64_t>(candidates.size());
  return result;
}

}  // namespace dflop
