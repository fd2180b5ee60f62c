// A uniform plan can be written as the options of Megatron-LM's training scripts.
//
// The options, and what they refuse, are those of NVIDIA/Megatron-LM as of August 2026 (d98e8a6):
// megatron/training/arguments.py and megatron/training/config (names), and in megatron/core
// transformer/transformer_config.py (heads, layers, recomputation),
// transformer/pipeline_parallel_layer_layout.py (layers of stages) and pipeline_parallel/schedules.py
// (order). That the encoder is on the first stage is of pretrain_vlm.py and examples/multimodal/model.py.
#pragma once

#include <string>

#include "core/model.hpp"
#include "core/plan.hpp"
#include "traces/files/megatron_mimo.hpp"

namespace dflop {

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

}  // namespace dflop
