#include "costmodel/analytic/analytic.hpp"

#include <algorithm>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/flops.hpp"

namespace dflop {
namespace {

// A softmax in single steps (to fp32, scale, mask, softmax, to fp16) launches more kernels than a fused one.
// By how much that lengthens the launching of a layer was set by hand from a fit to the single-node A100
// rows; it is not a count of kernels.
constexpr double kSingleStepLaunches = 1.4;

// Adam reads gradient, parameter, mean and variance and writes the last three, and the parameter once more
// as the layers take it. In bf16 the parameter that the layers take is the only one.
constexpr double kAdamBytes = 7 * kFp32Bytes + kBf16Bytes;
constexpr double kBf16AdamBytes = 7 * kBf16Bytes;

}  // namespace

PassTimes AnalyticCostModel::layer_times(const TransformerSpec& spec, int layers, const Stage& stage,
                                         const Workload& work) const {
  PassTimes layer = transformer_layer(cluster_, spec, work, stage.tp, stage.sequence_parallel);
  const Seconds communication = 2 * tensor_all_reduce(stage, static_cast<double>(work.tokens), spec.hidden);
  layer.forward += communication;
  layer.backward_input += communication;
  if (stage.recomputation == Recomputation::full) layer.backward_input += layer.forward;
  if (stage.recomputation == Recomputation::selective) {
    layer.backward_input += attention_core(cluster_, spec, work, stage.tp).forward;
  }
  return {layers * layer.forward, layers * layer.backward_input, layers * layer.backward_weight};
}

PassTimes AnalyticCostModel::encoder_times(const Stage& stage, const Workload& work) const {
  PassTimes times;
  if (work.empty()) return times;
  if (stage.encoder_layers > 0) times += layer_times(model_.encoder, stage.encoder_layers, stage, work);
  if (stage.connector) {
    const double tokens = connector_tokens(model_.connector, work);
    times += connector(cluster_, model_.connector, work, stage.tp);
    times.forward += tensor_all_reduce(stage, tokens, model_.connector.widths.back());
    times.backward_input += tensor_all_reduce(stage, tokens, model_.connector.widths.front());
  }
  return times;
}

PassTimes AnalyticCostModel::llm_times(const Stage& stage, const Workload& work) const {
  PassTimes times;
  if (work.empty()) return times;
  const Seconds all_reduce = tensor_all_reduce(stage, static_cast<double>(work.tokens), model_.llm.hidden);
  if (stage.embedding) {
    times += embedding(cluster_, model_.llm, work);
    times.forward += all_reduce;
  }
  if (stage.llm_layers > 0) times += layer_times(model_.llm, stage.llm_layers, stage, work);
  if (stage.head) {
    times += vocabulary_head(cluster_, model_.llm, work, stage.tp);
    times.backward_input += all_reduce;
  }
  return times;
}

PassTimes AnalyticCostModel::launch_times(const Stage& stage, const Work& work) const {
  const auto layers = [](const TransformerSpec& spec, int count, const Workload& load) {
    const double launches = spec.attention == AttentionKernel::softmax ? kSingleStepLaunches : 1;
    return load.empty() ? 0.0 : count * launches;
  };
  const Seconds forward =
      cluster_.software.layer_launch * (layers(model_.encoder, stage.encoder_layers, work.encoder) +
                                        layers(model_.llm, stage.llm_layers, work.llm));
  const Seconds again = stage.recomputation == Recomputation::full ? forward : Seconds(0);
  return {forward, again + forward / 2, forward / 2};
}

Seconds AnalyticCostModel::compute(Op op, const Stage& stage, const Work& work) const {
  PassTimes times = encoder_times(stage, work.encoder);
  times += llm_times(stage, work.llm);
  const PassTimes launches = launch_times(stage, work);
  for (const auto pass : {&PassTimes::forward, &PassTimes::backward_input, &PassTimes::backward_weight}) {
    times.*pass = std::max(times.*pass, launches.*pass);
  }
  return times.of(op);
}

Seconds AnalyticCostModel::optimizer_step(const Stage& stage) const {
  const double owned = static_cast<double>(stage_parameters(stage, model_)) / (stage.zero1 ? stage.dp : 1);
  const double bytes = stage.optimizer_states == OptimizerStates::fp32 ? kAdamBytes : kBf16AdamBytes;
  return memory_time(cluster_, bytes * owned);
}

}  // namespace dflop
