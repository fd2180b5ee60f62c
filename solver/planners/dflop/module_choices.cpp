#include "solver/planners/dflop/module_choices.hpp"

#include <algorithm>
#include <limits>

#include "core/program/lowering.hpp"
#include "solver/plan_problem/trial.hpp"

namespace dflop {
namespace {

bool holds_no_more(const Stage& a, const Stage& b) {
  return a.encoder_layers <= b.encoder_layers && a.llm_layers <= b.llm_layers && a.connector <= b.connector &&
         a.embedding <= b.embedding && a.head <= b.head;
}

std::vector<Stage> possibly_slowest(const std::vector<Stage>& stages) {
  std::vector<Stage> kept;
  for (const Stage& stage : stages) {
    const auto covers = [&](const Stage& other) { return holds_no_more(stage, other); };
    const auto covered = [&](const Stage& other) { return holds_no_more(other, stage); };
    if (std::any_of(kept.begin(), kept.end(), covers)) continue;
    kept.erase(std::remove_if(kept.begin(), kept.end(), covered), kept.end());
    kept.push_back(stage);
  }
  return kept;
}

/// Returns the different stages of a pipeline, each once.
std::vector<Stage> different(const std::vector<Stage>& stages) {
  std::vector<Stage> kept;
  for (const Stage& stage : stages) {
    if (std::find(kept.begin(), kept.end(), stage) == kept.end()) kept.push_back(stage);
  }
  return kept;
}

/// Returns the most model state of any of the stages under so many dp ranks.
Bytes most_model_state(const CostModel& cost, std::vector<Stage> stages, int dp) {
  Bytes most;
  for (Stage& stage : stages) {
    stage.dp = dp;
    most = std::max(most, cost.model_state(stage).total());
  }
  return most;
}

/// Returns the place of a kind of pipeline, which is added where it is new.
int kind_of(std::vector<std::vector<Stage>>& kinds, const std::vector<Stage>& stages) {
  const auto known = std::find(kinds.begin(), kinds.end(), stages);
  if (known != kinds.end()) return static_cast<int>(known - kinds.begin());
  kinds.push_back(stages);
  return static_cast<int>(kinds.size()) - 1;
}

/// Returns the stages of one module with dp 1; the other one is a single stage that is not looked at.
std::vector<Stage> module_stages(const PlanRequest& request, Module module, int tp, int pp) {
  const int encoder_layers = request.model.encoder.layers;
  const int llm_layers = request.model.llm.layers;
  Plan plan = blank_plan(request, "");
  const bool is_encoder = module == Module::encoder;
  plan.encoder = is_encoder ? even_module(encoder_layers, tp, pp, 1) : even_module(encoder_layers, 1, 1, 1);
  plan.llm = is_encoder ? even_module(llm_layers, 1, 1, 1) : even_module(llm_layers, tp, pp, 1);
  std::vector<Stage> stages = plan_stages(plan, request.model);
  if (is_encoder) {
    stages.pop_back();
  } else {
    stages.erase(stages.begin());
  }
  return stages;
}

}  // namespace

ModulePlan even_module(int layers, int tp, int pp, int dp) {
  return {tp, pp, dp, split_layers(layers, pp)};
}

ModuleChoices module_choices(const PlanRequest& request, Module module) {
  const int layers = module == Module::encoder ? request.model.encoder.layers : request.model.llm.layers;
  const int most_dp = module == Module::encoder ? std::numeric_limits<int>::max() : request.gbs;
  const int most_ranks = request.cluster.gpus() - 1;
  ModuleChoices all;
  for (int tp = 1; tp <= request.cluster.gpus_per_node; ++tp) {
    if (request.cluster.gpus_per_node % tp != 0) continue;
    for (int pp = 1; pp <= layers && tp * pp <= most_ranks; ++pp) {
      const int pipeline = static_cast<int>(all.pipelines.size());
      const std::vector<Stage> stages = different(module_stages(request, module, tp, pp));
      all.pipelines.push_back({tp, pp, kind_of(all.kinds, possibly_slowest(stages))});
      for (int dp = 1; dp <= most_dp && tp * pp * dp <= most_ranks; ++dp) {
        all.choices.push_back({pipeline, dp, tp * pp * dp, most_model_state(request.cost, stages, dp)});
      }
    }
  }
  return all;
}

}  // namespace dflop
