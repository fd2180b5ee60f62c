#include "traces/files/megatron.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "core/order/pipeline_order.hpp"

namespace dflop {
namespace {

int layers_of_all(const std::vector<int>& layers) {
  return std::accumulate(layers.begin(), layers.end(), 0);
}

/// Lists the reasons why the plan cannot run, each as "key: expected ..., found ...".
std::vector<std::string> obstacles_of_options(const Plan& plan, const ModelSpec& model) {
  std::vector<std::string> reasons;
  if (plan.layout != Layout::uniform) {
    reasons.push_back(fmt::format(
        "layout: expected a uniform plan, because all ranks have the same tp, pp and dp, found a {} "
        "plan{}",
        to_string(plan.layout), plan.layout == Layout::disaggregated ? " (--to megatron-mimo)" : ""));
    return reasons;
  }
  const std::vector<int>& encoder = plan.encoder.layers;
  if (plan.llm.pp > 1 && !encoder.empty() && layers_of_all(encoder) != encoder.front()) {
    reasons.push_back(
        fmt::format("encoder.layers: expected all {} on the first stage, where the encoder is, found {}",
                    layers_of_all(encoder), fmt::join(encoder, " ")));
  }
  const bool known = plan.order == OrderKind::one_f_one_b || plan.order == OrderKind::interleaved;
  if (!known && plan.llm.pp > 1)
    reasons.push_back(fmt::format("order: expected 1f1b or interleaved, found {}", to_string(plan.order)));
  if (plan.order == OrderKind::interleaved && plan.llm.pp > 1 && plan.microbatches < plan.llm.pp) {
    reasons.push_back(fmt::format("microbatches: expected at least llm.pp {} for interleaved, found {}",
                                  plan.llm.pp, plan.microbatches));
  }
  for (std::string& reason : head_obstacles(plan, model)) reasons.push_back(std::move(reason));
  return reasons;
}

bool divides_batch(const Plan& plan) {
  return plan.gbs % plan.bins() == 0;
}

/// Lists what the options cannot express about a plan that they can run.
std::vector<std::string> unsaid_by_options(const Plan& plan) {
  std::vector<std::string> unsaid;
  const std::string made = plan.objective ? fmt::format("are made for a small {}", to_string(*plan.objective))
                                          : "are made by a scheduler";
  if (divides_batch(plan)) {
    unsaid.push_back(fmt::format(
        "schedule: each microbatch gets the next {} samples of its dp rank, as with 'dflop schedule "
        "--scheduler sequential --no-respect-memory', which is slower than the plan and may need more memory: "
        "simulate it first. The plan's microbatches {} and have uneven numbers of samples: to use "
        "them, the data loader packs each into one sample, and the options are --micro-batch-size 1 "
        "--global-batch-size {}, which count microbatches",
        plan.gbs / plan.bins(), made, plan.bins()));
  } else {
    unsaid.push_back(fmt::format(
        "schedule: --micro-batch-size and --global-batch-size count microbatches, {} of dp {} x {}, "
        "because these do not divide gbs {}: the data loader must pack each of the plan's microbatches, "
        "which {}, into one of its samples",
        plan.bins(), plan.llm.dp, plan.microbatches, plan.gbs, made));
  }
  for (std::string& line : unsaid_of_trained(plan)) unsaid.push_back(std::move(line));
  unsaid.emplace_back(
      "padding: samples are padded to the sequence length unless they are packed; the plan's times are without "
      "padding");
  if (plan.llm.pp == 1 && plan.order != OrderKind::one_f_one_b) {
    unsaid.push_back(
        fmt::format("order: a microbatch's backward follows its forward, as in 1f1b, instead of {}{}",
                    to_string(plan.order),
                    plan.chunks > 1 ? "; its chunks become one, whose memory is freed layer by layer" : ""));
  }
  if (plan.sequence_parallel && plan.llm.tp > 1 && layers_of_all(plan.encoder.layers) > 0)
    unsaid.emplace_back("sequence_parallel: only for the LLM");
  if (plan.recomputation != Recomputation::none && layers_of_all(plan.encoder.layers) > 0) {
    unsaid.emplace_back(
        "recomputation: for the LLM, and with pretrain_vlm.py for the encoder; examples/multimodal "
        "recomputes the encoder with --recompute-vision");
  }
  if (plan.optimizer_states == OptimizerStates::bf16) {
    unsaid.emplace_back(
        plan.zero1 ? "optimizer_states: parameters are kept in fp32, next to gradients and moments in "
                     "bf16"
                   : "optimizer_states: fp32 instead of bf16, which needs the distributed optimizer");
  }
  unsaid.emplace_back(
      plan.clip_gradients
          ? "clip_gradients: the max norm, which is 1.0 here"
          : "clip_gradients: not set in the plan, so your run uses Megatron-LM's default, which clips at "
            "1.0");
  return unsaid;
}

/// An OptionLines collects options, one a line.
class OptionLines {
 public:
  template <typename... Values>
  void add(fmt::format_string<Values...> line, Values&&... values) {
    text_ += "  " + fmt::format(line, std::forward<Values>(values)...) + '\n';
  }
  void add_if(bool applies, std::string_view line) {
    if (applies) add("{}", line);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_layers(OptionLines& lines, const Plan& plan) {
  const std::vector<int>& layers = plan.llm.layers;
  lines.add("--num-layers {}", layers_of_all(layers));
  if (plan.llm.pp == 1) return;
  const bool even = std::adjacent_find(layers.begin(), layers.end(), std::not_equal_to<>()) == layers.end();
  if (even) {
    if (plan.chunks > 1) lines.add("--num-virtual-stages-per-pipeline-rank {}", plan.chunks);
    return;
  }
  const bool some_everywhere = *std::min_element(layers.begin(), layers.end()) > 0;
  if (plan.chunks == 1 && some_everywhere && with_equal_middle(layers) == layers) {
    lines.add("--decoder-first-pipeline-num-layers {}", layers.front());
    lines.add("--decoder-last-pipeline-num-layers {}", layers.back());
    return;
  }
  lines.add("--pipeline-model-parallel-layout '{}'", pipeline_layout(layers));
}

void add_recomputation(OptionLines& lines, Recomputation recomputation) {
  switch (recomputation) {
    case Recomputation::none:
      return;
    case Recomputation::selective:
      return lines.add("--recompute-granularity selective --recompute-modules core_attn");
    case Recomputation::full:
      return lines.add("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  }
}

void add_precision(OptionLines& lines, const Plan& plan) {
  lines.add("--bf16");
  const bool keeps_bf16 = plan.optimizer_states == OptimizerStates::bf16 && plan.zero1;
  if (keeps_bf16) {
    lines.add("--grad-reduce-in-bf16 --use-precision-aware-optimizer --main-grads-dtype bf16");
    lines.add("--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16");
  } else {
    lines.add("--accumulate-allreduce-grads-in-fp32");
  }
  const std::int64_t bucket = plan.gradient_bucket.count;
  if (bucket == 0) return;
  const std::int64_t of_each = gradient_bytes(keeps_bf16 ? OptimizerStates::bf16 : OptimizerStates::fp32);
  lines.add("--overlap-grad-reduce --ddp-bucket-size {}  # parameters",
            std::max<std::int64_t>(1, bucket / of_each));
}

std::string options_of(const Plan& plan) {
  OptionLines lines;
  lines.add("--tensor-model-parallel-size {}", plan.llm.tp);
  lines.add("--pipeline-model-parallel-size {}", plan.llm.pp);
  add_layers(lines, plan);
  if (const int group = interleaved_group(plan.llm.pp, plan.microbatches);
      plan.order == OrderKind::interleaved && plan.llm.pp > 1 && group != plan.llm.pp) {
    lines.add("--microbatch-group-size-per-virtual-pipeline-stage {}", group);
  }
  Plan stage_major = plan;
  stage_major.placement = RankOrder::stage_major;
  lines.add_if(first_ranks(plan) != first_ranks(stage_major), "--use-tp-pp-dp-mapping");
  lines.add_if(plan.sequence_parallel && plan.llm.tp > 1, "--sequence-parallel");
  const bool by_samples = divides_batch(plan);
  lines.add("--micro-batch-size {} --global-batch-size {}", by_samples ? plan.gbs / plan.bins() : 1,
            by_samples ? plan.gbs : plan.bins());
  lines.add("--calculate-per-token-loss");
  add_recomputation(lines, plan.recomputation);
  lines.add_if(plan.zero1, "--use-distributed-optimizer");
  add_precision(lines, plan);
  lines.add_if(plan.clip_gradients, "--clip-grad 1.0");
  return lines.text();
}

}  // namespace

std::string pipeline_layout(const std::vector<int>& layers) {
  std::string text = "E";
  for (std::size_t s = 0; s < layers.size(); ++s) {
    if (s > 0) text += '|';
    if (layers[s] == 1) text += 't';
    if (layers[s] > 1) text += fmt::format("t*{}", layers[s]);
  }
  return text + 'L';
}

ExportedPlan to_megatron_lm(const Plan& plan, const ModelSpec& model, const std::string& where) {
  const std::vector<std::string> reasons = obstacles_of_options(plan, model);
  if (!reasons.empty()) {
    throw Error(ErrorKind::infeasible,
                fmt::format("megatron-lm cannot run '{}': {}", describe(plan), fmt::join(reasons, "; ")),
                where);
  }
  ExportedPlan exported{{}, unsaid_by_options(plan)};
  exported.text =
      plan_comments(plan, "options of Megatron-LM, megatron/training/arguments.py", exported.unsaid);
  exported.text += fmt::format(R"(#
# On {} ranks, of which Megatron-LM makes dp {}; add the model's widths and the data:
#   source FILE; torchrun ... pretrain_vlm.py "${{MEGATRON_ARGS[@]}}" ...
MEGATRON_ARGS=(
{})
)",
                               plan.ranks(), plan.llm.dp, options_of(plan));
  return exported;
}

}  // namespace dflop
