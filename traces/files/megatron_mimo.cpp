#include "traces/files/megatron.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <tuple>

#include "core/error.hpp"
#include "traces/text/json_writer.hpp"

namespace dflop {
namespace {

std::string_view python(bool value) {
  return value ? "True" : "False";
}

/// Returns text in quotes on one line, because a model's name may contain line ends, and the rest would
/// become code.
std::string quoted(const std::string& text) {
  std::string result;
  append_json_string(result, text);
  return result;
}

std::int64_t samples_step(const Plan& plan) {
  return std::int64_t{plan.microbatches} * std::lcm(std::int64_t{plan.encoder.dp}, std::int64_t{plan.llm.dp});
}

/// Lists the reasons why the plan cannot run, each as "key: expected ..., found ...".
std::vector<std::string> obstacles(const Plan& plan, const ModelSpec& model) {
  if (plan.layout != Layout::disaggregated) {
    return {fmt::format(
        "layout: expected a disaggregated plan, because modules have their own ranks, found a {} plan{}",
        to_string(plan.layout), plan.layout == Layout::uniform ? " (--to megatron-lm)" : "")};
  }
  std::vector<std::string> reasons;
  const auto require_power_of_two = [&](std::string_view key, int tp) {
    if (std::has_single_bit(static_cast<unsigned>(tp))) return;
    reasons.push_back(fmt::format("{}: expected a power of 2, found {}", key, tp));
  };
  require_power_of_two("encoder.tp", plan.encoder.tp);
  require_power_of_two("llm.tp", plan.llm.tp);
  const int smaller = std::min(plan.encoder.dp, plan.llm.dp);
  const int larger = std::max(plan.encoder.dp, plan.llm.dp);
  if (larger % smaller != 0) {
    reasons.push_back(fmt::format("encoder.dp: expected a divisor or a multiple of llm.dp {}, found {}",
                                  plan.llm.dp, plan.encoder.dp));
  } else if (const std::int64_t step = samples_step(plan); plan.gbs % step != 0) {
    const std::int64_t below = plan.gbs / step * step;
    reasons.push_back(fmt::format(
        "gbs: expected a multiple of {} ({} microbatches x dp {}), because all microbatches have the same "
        "number of samples, found {}; the nearest {} {}",
        step, plan.microbatches, larger, plan.gbs, below > 0 ? fmt::format("are {} and", below) : "is",
        below + step));
  }
  for (std::string& reason : head_obstacles(plan, model)) reasons.push_back(std::move(reason));
  return reasons;
}

/// StageLayers describes the layers of a module's stages in the terms of the form.
struct StageLayers {
  int all = 0;
  /// The layers of the first and the last stage; nothing if all stages have equally many.
  std::optional<std::pair<int, int>> ends;
};

StageLayers stage_layers(const std::vector<int>& layers) {
  StageLayers said;
  said.all = std::accumulate(layers.begin(), layers.end(), 0);
  const auto other = [&](int count) { return count != layers.front(); };
  if (std::any_of(layers.begin(), layers.end(), other)) said.ends = {layers.front(), layers.back()};
  return said;
}

/// Returns the layers of the LLM's pipeline ranks. A rank with several chunks has the layers of all, in even
/// parts.
std::vector<int> llm_layers(const Plan& plan) {
  if (plan.chunks == 1) return plan.llm.layers;
  return split_layers(std::accumulate(plan.llm.layers.begin(), plan.llm.layers.end(), 0), plan.llm.pp);
}

/// Lists what the form cannot express about a plan that it can run.
std::vector<std::string> unsaid_of(const Plan& plan) {
  std::vector<std::string> unsaid;
  const int samples = plan.gbs / plan.microbatches;
  unsaid.push_back(fmt::format(
      "schedule: each microbatch gets the next {} samples of the data, {} for each dp rank of the "
      "encoder and {} for each of the LLM, as with 'dflop schedule --scheduler sequential "
      "--no-respect-memory', which is slower than the plan and may need more memory: simulate it first. The "
      "plan's microbatches {}",
      samples, samples / plan.encoder.dp, samples / plan.llm.dp,
      plan.objective ? fmt::format("are made for a small {}", to_string(*plan.objective))
                     : "are made by a scheduler"));
  unsaid.emplace_back(
      "padding: samples are padded to seq_length unless the recipe packs them; the plan's times are without padding");
  if (plan.encoder.dp > plan.llm.dp && samples > plan.encoder.dp) {
    unsaid.push_back(fmt::format(
        "samples of unlike encoder tokens: with more encoder dp ranks than LLM dp ranks and {} samples "
        "per microbatch on each, samples need equally many encoder tokens, or the run fails",
        samples / plan.encoder.dp));
  }
  if (plan.order != OrderKind::one_f_one_b) {
    unsaid.push_back(fmt::format("order: 1f1b runs instead of {}", to_string(plan.order)));
  }
  if (plan.chunks > 1) {
    unsaid.push_back(
        fmt::format("chunks: one stage for each pipeline rank of the LLM instead of {}", plan.chunks));
  }
  const auto compare = [&](std::string_view key, const std::vector<int>& asked) {
    const std::vector<int> said = with_equal_middle(asked);
    if (said == asked) return;
    unsaid.push_back(
        fmt::format("{}: {} instead of {}, because all stages except the first and the last have equally "
                    "many",
                    key, fmt::join(said, " "), fmt::join(asked, " ")));
  };
  compare("encoder.layers", plan.encoder.layers);
  compare("llm.layers", llm_layers(plan));
  Plan stage_major = plan;
  stage_major.placement = RankOrder::stage_major;
  if (first_ranks(plan) != first_ranks(stage_major)) {
    unsaid.push_back(fmt::format(
        "placement: stage-major instead of {}: a module's ranks follow each other, and so do the dp ranks "
        "of a stage",
        to_string(plan.placement)));
  }
  if (plan.share_rule != ShareRule::count && plan.encoder.dp > 1) {
    unsaid.push_back(fmt::format(
        "share_rule: the encoder's dp ranks get equally many samples (count) instead of equal FLOP ({})",
        to_string(plan.share_rule)));
  }
  if (plan.reshard != Reshard::direct || plan.encoder.tp > 1 || plan.llm.tp > 1) {
    unsaid.push_back(fmt::format(
        "reshard: the first tp rank of each encoder dp rank sends to the first of the LLM's, which "
        "broadcasts to its tp group, instead of {}",
        to_string(plan.reshard)));
  }
  if (plan.sequence_parallel && plan.encoder.tp > 1) {
    unsaid.emplace_back(
        "sequence_parallel: only for the LLM; the encoder's output must be whole on every rank");
  }
  for (std::string& line : unsaid_of_trained(plan)) unsaid.push_back(std::move(line));
  if (plan.optimizer_states == OptimizerStates::bf16) {
    unsaid.emplace_back(
        plan.zero1 ? "optimizer_states: parameters are kept in fp32, next to gradients and moments in "
                     "bf16"
                   : "optimizer_states: fp32 instead of bf16, which needs the distributed optimizer");
  }
  return unsaid;
}

std::string module_parallelism(std::string_view name, const ModulePlan& module, int offset) {
  return fmt::format(R"(        "{}": ModuleParallelismConfig(
            tensor_model_parallel_size={},
            pipeline_model_parallel_size={},
            data_parallel_size={},
            rank_offset={},
        ),
)",
                     name, module.tp, module.pp, module.dp, offset);
}

/// Returns the argument of the recipes' option --component.
std::string component(std::string_view name, const ModulePlan& module, int offset) {
  return fmt::format("--component {}=tp={},pp={},dp={},rank_offset={}", name, module.tp, module.pp, module.dp,
                     offset);
}

std::string_view recomputation_fields(Recomputation recomputation) {
  switch (recomputation) {
    case Recomputation::none:
      return R"(        recompute_granularity=None,
)";
    case Recomputation::selective:
      return R"(        recompute_granularity="selective",
        recompute_modules=["core_attn"],
)";
    case Recomputation::full:
      return R"(        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
)";
  }
  return "";
}

std::string transformer(std::string_view name, const ModulePlan& module, const std::vector<int>& layers,
                        bool sequence_parallel, Recomputation recomputation) {
  const StageLayers said = stage_layers(with_equal_middle(layers));
  std::string text = fmt::format(R"(    "{}": dict(
        num_layers={},
        tensor_model_parallel_size={},
        pipeline_model_parallel_size={},
)",
                                 name, said.all, module.tp, module.pp);
  if (said.ends) {
    text += fmt::format(
        "        num_layers_in_first_pipeline_stage={},\n        num_layers_in_last_pipeline_stage={},\n",
        said.ends->first, said.ends->second);
  }
  if (module.pp > 1) text += "        pipeline_dtype=torch.bfloat16,\n";
  text += fmt::format("        sequence_parallel={},\n", python(sequence_parallel));
  text += recomputation_fields(recomputation);
  return text + "        calculate_per_token_loss=True,\n    ),\n";
}

/// Tells whether optimizer states are kept in bf16; only the distributed optimizer can do that.
bool keeps_bf16(const Plan& plan) {
  return plan.optimizer_states == OptimizerStates::bf16 && plan.zero1;
}

std::string data_parallel(const Plan& plan) {
  const OptimizerStates states = keeps_bf16(plan) ? OptimizerStates::bf16 : OptimizerStates::fp32;
  const std::int64_t bucket = plan.gradient_bucket.count;
  std::string text = fmt::format("    use_distributed_optimizer={},\n    grad_reduce_in_fp32={},\n",
                                 python(plan.zero1), python(states == OptimizerStates::fp32));
  text += fmt::format("    average_in_collective=False,\n    overlap_grad_reduce={},\n", python(bucket > 0));
  if (bucket > 0) {  // in parameters, whose gradients have several bytes each
    text += fmt::format("    bucket_size={},\n", std::max<std::int64_t>(1, bucket / gradient_bytes(states)));
  }
  return text;
}

std::string optimizer(const Plan& plan) {
  std::string text = fmt::format("    use_distributed_optimizer={},\n", python(plan.zero1));
  if (keeps_bf16(plan)) {
    text +=
        "    use_precision_aware_optimizer=True,\n    main_grads_dtype=torch.bfloat16,\n"
        "    exp_avg_dtype=torch.bfloat16,\n    exp_avg_sq_dtype=torch.bfloat16,\n";
  }
  return text;
}

}  // namespace

std::vector<std::string> unsaid_of_trained(const Plan& plan) {
  if (plan.trained.all() && plan.trained.lora_rank == 0) return {};
  return {fmt::format("frozen: all parts are trained instead of {}; the script must freeze the others",
                      describe(plan.trained))};
}

std::string plan_comments(const Plan& plan, std::string_view form, const std::vector<std::string>& unsaid) {
  std::string text =
      fmt::format(R"(# This is a plan of dflop for {}.
# plan: {}
# planner {}, model {}, cluster {}
#
# What this form cannot say of the plan:
)",
                  form, describe(plan), quoted(plan.planner), quoted(plan.model), quoted(plan.cluster));
  for (const std::string& line : unsaid) text += "# * " + line + '\n';
  return text;
}

std::vector<std::string> head_obstacles(const Plan& plan, const ModelSpec& model) {
  std::vector<std::string> reasons;
  if (model.second) {
    reasons.push_back(
        fmt::format("model: expected one encoder, found a second one, {}", model.second->encoder.name));
  }
  const auto require = [&](std::string_view module, int tp, const TransformerSpec& spec) {
    if (spec.heads % tp != 0) {
      reasons.push_back(
          fmt::format("{}.tp: expected a divisor of {} heads, because heads are not padded, "
                      "found {}",
                      module, spec.heads, tp));
    } else if (spec.kv_heads > 0 && spec.kv_heads % tp != 0 && tp % spec.kv_heads != 0) {
      reasons.push_back(fmt::format("{}.tp: expected a divisor or a multiple of {} KV heads, found {}",
                                    module, spec.kv_heads, tp));
    }
  };
  require("encoder", plan.encoder.tp, model.encoder);
  require("llm", plan.llm.tp, model.llm);
  return reasons;
}

std::vector<int> with_equal_middle(const std::vector<int>& layers) {
  const int stages = static_cast<int>(layers.size());
  if (stages <= 3) return layers;
  const int all = std::accumulate(layers.begin(), layers.end(), 0);
  std::vector<int> best;
  std::tuple<int, int, int> least;
  for (int middle = 1; (stages - 2) * middle <= all - 2; ++middle) {
    const int ends = all - (stages - 2) * middle;
    // All first stages in this range are equally near. The first stage takes as many layers as it can without
    // exceeding the largest stage.
    const int one = layers.front();
    const int other = ends - layers.back();
    const int fewest = std::max(std::min(one, other), 1);
    const int most = std::min(std::max(one, other), ends - 1);
    const int even = std::clamp((ends + 1) / 2, fewest, most);
    std::vector<int> split(stages, middle);
    split.front() = std::min(most, std::max({middle, even, ends - even}));
    split.back() = ends - split.front();
    int off = 0;
    for (int s = 0; s < stages; ++s) off += std::abs(split[s] - layers[s]);
    const std::tuple rank{off, *std::max_element(split.begin(), split.end()), split.back()};
    if (best.empty() || rank < least) {
      best = split;
      least = rank;
    }
  }
  return best;
}

ExportedPlan to_megatron_mimo(const Plan& plan, const ModelSpec& model, const std::string& where) {
  const std::vector<std::string> reasons = obstacles(plan, model);
  if (!reasons.empty()) {
    throw Error(ErrorKind::infeasible,
                fmt::format("megatron-mimo cannot run '{}': {}", describe(plan), fmt::join(reasons, "; ")),
                where);
  }
  const int offset = plan.encoder.ranks();
  const int samples = plan.gbs / plan.microbatches;
  const bool llm_is_sequence_parallel = plan.sequence_parallel && plan.llm.tp > 1;
  ExportedPlan exported{{}, unsaid_of(plan)};
  std::string& text = exported.text;
  text = plan_comments(plan, "MegatronMIMO of Megatron-Bridge, megatron_mimo_config.py", exported.unsaid);
  text += fmt::format(R"(#
# The same as options of examples/megatron_mimo/qwen35_vl/finetune_qwen35_vl.py on {} ranks:
#   {} {} --micro-batch-size {} --global-batch-size {}
)",
                      plan.ranks(), component("images", plan.encoder, 0),
                      component("language", plan.llm, offset), samples, plan.gbs);
  if (plan.encoder.pp > 1 || plan.llm.pp > 1 || keeps_bf16(plan)) text += "\nimport torch\n";
  text += R"(
from megatron.bridge.models.megatron_mimo.megatron_mimo_config import (
    MegatronMIMOParallelismConfig,
    ModuleParallelismConfig,
)
)";
  text += fmt::format("\nWORLD_SIZE = {}\nNUM_MICROBATCHES = {}  # global over micro batch size\n",
                      plan.ranks(), plan.microbatches);
  text += "\nPARALLELISM = MegatronMIMOParallelismConfig(\n    module_parallelisms={\n";
  text += module_parallelism("images", plan.encoder, 0) + module_parallelism("language", plan.llm, offset);
  text += "    },\n)\n";
  text += fmt::format(R"(
# TrainingConfig(**TRAINING, ...): a micro batch spans all dp ranks.
TRAINING = dict(micro_batch_size={}, global_batch_size={})

# TransformerConfig(**TRANSFORMER[module], ...): of each module's encoder or LLM.
TRANSFORMER = {{
)",
                      samples, plan.gbs);
  text += transformer("images", plan.encoder, plan.encoder.layers, false, recomputation_of(plan, true)) +
          transformer("language", plan.llm, llm_layers(plan), llm_is_sequence_parallel, plan.recomputation);
  text += fmt::format(R"(}}

# ModuleSpec(params=dict(**LANGUAGE_PARAMS, ...)): MegatronMIMO itself splits the sequence over tp.
LANGUAGE_PARAMS = dict({})

# DistributedDataParallelConfig(**DDP)
DDP = dict(
{})

# OptimizerConfig(**OPTIMIZER, ...)
OPTIMIZER = dict(
{})
)",
                      llm_is_sequence_parallel ? "scatter_embedding_sequence_parallel=False" : "",
                      data_parallel(plan), optimizer(plan));
  return exported;
}

}  // namespace dflop
