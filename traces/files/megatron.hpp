// This file exports plans in two forms: as the configuration of Megatron-Bridge's MegatronMIMO recipes, which
// gives each module of a multimodal model its own parallelism, and as options of Megatron-LM's training
// scripts.
//
// The recipes' form follows ModuleParallelismConfig and MegatronMIMOParallelismConfig in
// NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/models/megatron_mimo/megatron_mimo_config.py, as of August
// 2026 (067f987). Its meaning follows from megatron_mimo_builder.py in the same folder (ranks),
// training/train_megatron_mimo.py (order), and in NVIDIA/Megatron-LM (d98e8a6) from
// megatron/core/models/mimo/model/base.py (samples), pipeline_parallel/bridge_communicator.py (messages) and
// transformer/transformer_config.py (layers, recomputation).
//
// The options and their limits follow NVIDIA/Megatron-LM as of August 2026 (d98e8a6):
// megatron/training/arguments.py and megatron/training/config (names), and in megatron/core
// transformer/transformer_config.py (heads, layers, recomputation),
// transformer/pipeline_parallel_layer_layout.py (layers of stages) and pipeline_parallel/schedules.py
// (order). pretrain_vlm.py and examples/multimodal/model.py place the encoder on the first stage.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// An ExportedPlan is a plan in another program's form.
struct ExportedPlan {
  std::string text;                 ///< contents of the file
  std::vector<std::string> unsaid;  ///< settings that the form cannot express; `text` lists them as comments
};

/// Returns Python text that builds a MegatronMIMOParallelismConfig for the plan's modules, "images" and
/// "language", and defines dictionaries of arguments for TrainingConfig, TransformerConfig,
/// DistributedDataParallelConfig and OptimizerConfig. If the form cannot express the plan's layers per stage,
/// the text has the nearest ones that the form can express. `where` names the plan in errors.
/// @throws Error (infeasible) naming everything that keeps the plan from running in this form: a layout other
/// than disaggregated, a tp that is not a power of 2 or does not divide a module's heads, dp degrees of which
/// neither divides the other, microbatches with different numbers of samples.
ExportedPlan to_megatron_mimo(const Plan& plan, const ModelSpec& model, const std::string& where = "plan");

/// Returns text for a shell to source, which sets the array MEGATRON_ARGS to the options for the plan:
/// parallelism, layers of stages, batch sizes, recomputation, optimizer, gradient reductions. Comments list
/// what the options leave open. `where` names the plan in errors.
///
/// If microbatches x dp divides gbs, all microbatches have the same number of samples; otherwise
/// Megatron-LM's "sample" is one of the plan's microbatches, which the data loader packs.
/// @throws Error (infeasible) naming everything that keeps the plan from running this way: a layout other
/// than uniform, encoder layers after the first stage, an order other than 1f1b and interleaved on several
/// pipeline ranks, heads that tp does not divide.
ExportedPlan to_megatron_lm(const Plan& plan, const ModelSpec& model, const std::string& where = "plan");

/// Returns the value of Megatron-LM's option --pipeline-model-parallel-layout for layers[s] LLM layers on
/// stage s, the embedding on the first and the loss on the last: "Et*3|t*4L".
std::string pipeline_layout(const std::vector<int>& layers);

/// Lists the model's head counts that Megatron-LM cannot split over the plan's tp, because it pads no heads:
/// "llm.tp: expected one that divides 28 heads, found 8".
std::vector<std::string> head_obstacles(const Plan& plan, const ModelSpec& model);

/// Names frozen parts and LoRA in a plan, which neither form can express; empty if the plan trains all parts.
std::vector<std::string> unsaid_of_trained(const Plan& plan);

/// Returns comments for a shell or Python file. They name the plan from which the file was made, the file's
/// purpose, and the settings that it cannot express.
std::string plan_comments(const Plan& plan, std::string_view form, const std::vector<std::string>& unsaid);

/// Returns a division of the same layers in which all stages between the first and the last have equally
/// many. Of all such divisions, it is the nearest to `layers`, by the sum of absolute differences; ties go to
/// the smallest max, then to the smallest last stage. Every stage has at least one layer, in `layers` and in
/// the result.
std::vector<int> with_equal_middle(const std::vector<int>& layers);

}  // namespace dflop
