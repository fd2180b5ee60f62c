// Plans can be written in two forms: that in which Megatron-Bridge's MegatronMIMO recipes say how each module
// of a multimodal model is parallel, and as the options of Megatron-LM's training scripts.
//
// The recipes' form is that of ModuleParallelismConfig and MegatronMIMOParallelismConfig in
// NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/models/megatron_mimo/megatron_mimo_config.py, as of August
// 2026 (067f987). What it runs follows from megatron_mimo_builder.py beside it (ranks),
// training/train_megatron_mimo.py (order), and in NVIDIA/Megatron-LM (d98e8a6) from
// megatron/core/models/mimo/model/base.py (samples), pipeline_parallel/bridge_communicator.py (messages) and
// transformer/transformer_config.py (layers, recomputation).
//
// The options, and what they refuse, are those of NVIDIA/Megatron-LM as of August 2026 (d98e8a6):
// megatron/training/arguments.py and megatron/training/config (names), and in megatron/core
// transformer/transformer_config.py (heads, layers, recomputation),
// transformer/pipeline_parallel_layer_layout.py (layers of stages) and pipeline_parallel/schedules.py
// (order). That the encoder is on the first stage is of pretrain_vlm.py and examples/multimodal/model.py.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// An ExportedPlan is a plan in the form of another program.
struct ExportedPlan {
  std::string text;                 ///< of the file
  std::vector<std::string> unsaid;  ///< what the form cannot say, a line each; the text has them as comments
};

/// Returns Python text that makes a MegatronMIMOParallelismConfig of the plan's modules, "images" and
/// "language", and has dictionaries of arguments of TrainingConfig, TransformerConfig,
/// DistributedDataParallelConfig and OptimizerConfig. Layers of stages that the form cannot say become the
/// nearest that it can. `where` is the plan's place for errors.
/// @throws Error (infeasible) naming all that keeps the plan from running in this form: a layout other than
/// disaggregated, a tp that is no power of 2 or does not divide a module's heads, dp's of which neither
/// divides the other, microbatches of different numbers of samples.
ExportedPlan to_megatron_mimo(const Plan& plan, const ModelSpec& model, const std::string& where = "plan");

/// Returns text for a shell to source, which sets the array MEGATRON_ARGS to the options that make the plan:
/// parallelism, layers of stages, batch sizes, recomputation, optimizer, gradient reductions. Comments say
/// what the options leave open. `where` is the plan's place for errors.
///
/// Where microbatches x dp divides gbs, a microbatch has as many samples as any other; else Megatron-LM's
/// "sample" is one of the plan's microbatches, which the data loader packs.
/// @throws Error (infeasible) naming all that keeps the plan from running so: a layout other than uniform,
/// encoder layers behind the first stage, an order other than 1f1b and interleaved on several pipeline ranks,
/// heads that tp does not divide.
ExportedPlan to_megatron_lm(const Plan& plan, const ModelSpec& model, const std::string& where = "plan");

/// Returns how Megatron-LM's option --pipeline-model-parallel-layout says that stage s has layers[s] LLM
/// layers, embedding in the first and loss in the last: "Et*3|t*4L".
std::string pipeline_layout(const std::vector<int>& layers);

/// Lists which heads of the model Megatron-LM does not split over the plan's tp, as it pads none: "llm.tp:
/// expected one that divides 28 heads, found 8".
std::vector<std::string> head_obstacles(const Plan& plan, const ModelSpec& model);

/// Says which parts a plan freezes, and LoRA, which neither form can; nothing where all parts are trained.
std::vector<std::string> unsaid_of_trained(const Plan& plan);

/// Returns comments of a shell or of Python that say which plan a file is made of, for what, and what the
/// file cannot say.
std::string plan_comments(const Plan& plan, std::string_view form, const std::vector<std::string>& unsaid);

/// Returns the layers nearest to these, by the sum of all differences, with as many in all stages between the
/// first and the last. Of several equally near it has the smallest largest stage, then the smallest last.
/// Every stage has at least one, in both.
std::vector<int> with_equal_middle(const std::vector<int>& layers);

}  // namespace dflop
