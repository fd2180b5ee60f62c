#include "core/program/plan_stages.hpp"

#include <algorithm>

namespace dflop {

std::vector<Stage> plan_stages(const Plan& plan, const ModelSpec& model) {
  Stage common;
  common.recomputation = plan.recomputation;
  common.zero1 = plan.zero1;
  common.sequence_parallel = plan.sequence_parallel;
  std::vector<Stage> stages;
  const auto add_stage = [&](const ModulePlan& module, int encoder_layers, int llm_layers) {
    Stage stage = common;
    stage.tp = module.tp;
    stage.dp = module.dp;
    stage.encoder_layers = encoder_layers;
    stage.llm_layers = llm_layers;
    stages.push_back(stage);
  };
  if (plan.layout == Layout::uniform) {
    for (std::size_t s = 0; s < plan.llm.layers.size(); ++s) {
      add_stage(plan.llm, plan.encoder.layers[s], plan.llm.layers[s]);
    }
  } else {
    for (const int layers : plan.encoder.layers) add_stage(plan.encoder, layers, 0);
    for (const int layers : plan.llm.layers) add_stage(plan.llm, 0, layers);
  }
  const auto holds_encoder = [](const Stage& stage) { return stage.encoder_layers > 0; };
  const auto holds_llm = [](const Stage& stage) { return stage.llm_layers > 0; };
  const auto last_encoder = std::find_if(stages.rbegin(), stages.rend(), holds_encoder);
  if (last_encoder != stages.rend()) last_encoder->connector = model.connector.widths.size() > 1;
  std::find_if(stages.begin(), stages.end(), holds_llm)->embedding = true;
  std::find_if(stages.rbegin(), stages.rend(), holds_llm)->head = true;
  return stages;
}

std::int64_t stage_parameters(const Stage& stage, const ModelSpec& model) {
  std::int64_t sum = stage.encoder_layers * model.encoder.layer_parameters(stage.tp) +
                     stage.llm_layers * model.llm.layer_parameters(stage.tp);
  if (stage.connector) sum += model.connector.parameters(stage.tp);
  if (stage.embedding) sum += model.llm.embedding_parameters(stage.tp);
  const bool shared = stage.embedding && model.llm.tied_embeddings;
  if (stage.head && !shared) sum += model.llm.embedding_parameters(stage.tp);
  return sum;
}

PipelineShape plan_shape(const Plan& plan) {
  PipelineShape shape{plan.schedule, plan.llm.pp, plan.chunks, plan.microbatches};
  if (plan.layout != Layout::disaggregated) return shape;
  if (has_chunks(plan.schedule)) {
    shape.leading = plan.encoder.pp;
  } else {
    shape.ranks += plan.encoder.pp;
  }
  return shape;
}

PipelineOrder plan_order(const Plan& plan, const ScheduleTables& tables) {
  const PipelineShape shape = plan_shape(plan);
  return {shape, pipeline_steps(shape, tables)};
}

}  // namespace dflop
