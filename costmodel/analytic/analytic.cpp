#include "costmodel/analytic/analytic.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/flops.hpp"

namespace dflop {
namespace {

// A softmax in single steps (to fp32, scale, mask, softmax, to fp16) launches more kernels than a fused one.
// This factor on a layer's launch time was set by hand from a fit to the single-node A100 rows; it does not
// count kernels.
constexpr double kSingleStepLaunches = 1.4;

// Adam reads gradient, parameter, mean and variance, and writes the last three plus the parameter that the
// layers use. In bf16 there is only that one copy of the parameter.
constexpr double kAdamBytes = 7 * kFp32Bytes + kBf16Bytes;
constexpr double kBf16AdamBytes = 7 * kBf16Bytes;

/// Returns a cluster of one GPU type on which nothing takes longer than on any type of a mixed cluster.
ClusterSpec fastest_type(const ClusterSpec& mixed) {
  ClusterSpec fastest = mixed.with_gpus_of(mixed.node_groups.front());
  GpuSpec& gpu = fastest.gpu;
  SoftwareSpec& software = fastest.software;
  for (const NodeGroup& group : mixed.node_groups) {
    gpu.peak_flop_per_s = std::max(gpu.peak_flop_per_s, group.gpu.peak_flop_per_s);
    gpu.memory_bandwidth_bytes_per_s =
        std::max(gpu.memory_bandwidth_bytes_per_s, group.gpu.memory_bandwidth_bytes_per_s);
    for (const auto less : {&SoftwareSpec::gemm_half_tokens, &SoftwareSpec::gemm_half_width,
                            &SoftwareSpec::attention_half_tokens}) {
      software.*less = std::min(software.*less, group.software.*less);
    }
    for (const auto less : {&SoftwareSpec::kernel_overhead, &SoftwareSpec::layer_launch})
      software.*less = std::min(software.*less, group.software.*less);
    software.tensor_overlap = std::max(software.tensor_overlap, group.software.tensor_overlap);
  }
  // Kernel speed is the product of the GPU's rate and the software's efficiency, so the best product counts.
  const auto best = [&](double SoftwareSpec::*part, double GpuSpec::*rate) {
    software.*part = 0;
    for (const NodeGroup& group : mixed.node_groups)
      software.*part = std::max(software.*part, group.software.*part * (group.gpu.*rate / (gpu.*rate)));
  };
  best(&SoftwareSpec::gemm_efficiency, &GpuSpec::peak_flop_per_s);
  best(&SoftwareSpec::attention_forward_efficiency, &GpuSpec::peak_flop_per_s);
  best(&SoftwareSpec::attention_backward_efficiency, &GpuSpec::peak_flop_per_s);
  best(&SoftwareSpec::memory_efficiency, &GpuSpec::memory_bandwidth_bytes_per_s);
  return fastest;
}

/// Returns the kind number of each stage; layers take equally long on stages of one kind.
std::vector<int> kinds_of_layers(const std::vector<Stage>& stages) {
  std::vector<Stage> kinds;
  std::vector<int> kind_of_stage;
  for (Stage stage : stages) {
    // The time of one layer does not depend on a stage's ends or number of layers.
    stage.encoder_layers = std::min(stage.encoder_layers, 1);
    stage.llm_layers = std::min(stage.llm_layers, 1);
    stage.connector = stage.embedding = stage.head = stage.front = false;
    const auto place = std::ranges::find(kinds, stage);
    kind_of_stage.push_back(static_cast<int>(place - kinds.begin()));
    if (place == kinds.end()) kinds.push_back(stage);
  }
  return kind_of_stage;
}

PassTimes operator*(int layers, const PassTimes& layer) {
  return {layers * layer.forward, layers * layer.backward_input, layers * layer.backward_weight};
}

}  // namespace

AnalyticCostModel::AnalyticCostModel(ModelSpec model, ClusterSpec cluster)
    : model_(std::move(model)), cluster_(std::move(cluster)) {
  std::vector<ClusterSpec> known;
  for (const NodeGroup& group : cluster_.node_groups) {
    const ClusterSpec type = cluster_.with_gpus_of(group);
    const auto place = std::ranges::find(known, type);
    const auto index = static_cast<int>(place - known.begin());
    if (place == known.end()) {
      known.push_back(type);
      types_.emplace_back(model_, type);
    }
    type_of_node_.insert(type_of_node_.end(), group.nodes, index);
  }
  if (model_.second) second_.emplace_back(model_.of_second(), cluster_);
  if (cluster_.is_mixed()) fastest_.emplace_back(model_, fastest_type(cluster_));
}

ProgramCosts AnalyticCostModel::price_sums(const Program& program) const {
  if (types_.empty()) return SumCostModel::price_sums(program);
  std::vector<ProgramCosts> priced;
  for (const AnalyticCostModel& type : types_) priced.push_back(type.price_sums(program));
  std::vector<Nanoseconds> slowest(program.instructions.size(), Nanoseconds(0));
  for (const Group& group : program.groups) {
    const int first = program.first_device(group);
    const int last = cluster_.node_of(first + group.ranks - 1);
    for (int node = cluster_.node_of(first); node <= last; ++node) {
      const ProgramCosts& there = priced[type_of_node_[node]];
      for (std::int64_t i = group.begin; i < group.end; ++i)
        slowest[i] = std::max(slowest[i], there.instruction[i]);
    }
  }
  ProgramCosts costs = std::move(priced.front());  // messages, reductions and memory are equal
  costs.instruction = std::move(slowest);
  return costs;
}

double AnalyticCostModel::granted_share(const Stage& stage) const {
  if (stage.share == 1) return 1;
  if (stage.encoder_layers > 0) return granted_shares(cluster_.gpu, stage.share).encoder;
  return granted_shares(cluster_.gpu, 1 - stage.share).llm;
}

PassTimes AnalyticCostModel::layer_times(const Processor& gpu, const TransformerSpec& spec,
                                         const Stage& stage, const Workload& work, bool trained,
                                         int lora_rank) const {
  PassTimes layer = transformer_layer(gpu, spec, work, stage.tp, stage.sequence_parallel);
  if (!trained) layer.backward_weight = Seconds(0);
  if (lora_rank > 0) layer += adapters(gpu, spec, lora_rank, static_cast<double>(work.tokens), stage.tp);
  const Seconds communication =
      2 * tensor_all_reduce(gpu, stage, static_cast<double>(work.tokens), spec.hidden);
  layer.forward += communication;
  layer.backward_input += communication;
  if (stage.recomputation == Recomputation::full) layer.backward_input += layer.forward;
  if (stage.recomputation == Recomputation::selective) {
    layer.backward_input += attention_core(gpu, spec, work, stage.tp).forward;
  }
  return layer;
}

AnalyticCostModel::LayerTimes AnalyticCostModel::layers_of(const Processor& gpu, const Stage& stage,
                                                           const Work& work) const {
  const TrainedParts& trained = stage.trained;
  LayerTimes layers;
  if (stage.encoder_layers > 0 && work.encoder.tokens > 0)
    layers.encoder = layer_times(gpu, model_.encoder, stage, work.encoder, trained.encoder, 0);
  if (stage.llm_layers > 0 && !work.llm.empty())
    layers.llm = layer_times(gpu, model_.llm, stage, work.llm, trained.llm, trained.lora_rank);
  return layers;
}

PassTimes AnalyticCostModel::encoder_times(const Processor& gpu, const Stage& stage, const Workload& work,
                                           const PassTimes& layer) const {
  PassTimes times;
  if (stage.front) times += front(gpu, model_, work, stage.sequence_parallel ? stage.tp : 1);
  const TrainedParts& trained = stage.trained;
  times += stage.encoder_layers * layer;
  if (!trained.encoder) times = {times.forward, Seconds(0), Seconds(0)};
  if (stage.connector) {
    const double tokens = connector_tokens(model_, work);
    for (int c = 0; c <= model_.deep_features(); ++c)
      times += connector(gpu, model_, work, stage.tp, trained);
    times.forward += tensor_all_reduce(gpu, stage, tokens, model_.connector.widths.back());
    if (trained.encoder || (trained.connector && model_.has_connector_norm()))
      times.backward_input += tensor_all_reduce(gpu, stage, tokens, model_.connector.widths.front());
  }
  if (stage.copies > 1) {
    // The copies gather their outputs after the forward. With sequence parallelism, the outputs' gradients
    // arrive in parts that are gathered before the backward; otherwise the message's time includes that.
    const double rows = stage.connector ? connector_tokens(model_, work) : static_cast<double>(work.tokens);
    const double bytes = kBf16Bytes * rows * static_cast<double>(model_.sent_width());
    const Seconds gather = copies_gather_time(cluster_, stage.copies, bytes);
    times.forward += gather;
    if (stage.is_trained() && stage.sequence_parallel) times.backward_input += gather;
  }
  return times;
}

PassTimes AnalyticCostModel::llm_times(const Processor& gpu, const Stage& stage, const Workload& work,
                                       const PassTimes& layer) const {
  PassTimes times;
  if (work.empty()) return times;
  const Seconds all_reduce =
      tensor_all_reduce(gpu, stage, static_cast<double>(work.tokens), model_.llm.hidden);
  if (stage.embedding) {
    const PassTimes lookup = embedding(gpu, model_.llm, work);
    times.forward += lookup.forward + all_reduce;
    if (stage.trained.llm) times.backward_weight += lookup.backward_weight;
  }
  times += stage.llm_layers * layer;
  if (stage.head) {
    const double rows = static_cast<double>(work.tokens) / (stage.sequence_parallel ? stage.tp : 1);
    if (model_.llm.form) times += norm(gpu, model_.llm.hidden, rows);
    times += vocabulary_head(gpu, model_.llm, work, stage.tp, stage.trained.llm);
    (model_.llm.logits_at_once > 0 ? times.forward : times.backward_input) += all_reduce;
  }
  return times;
}

PassTimes AnalyticCostModel::stage_times(const Processor& gpu, const Stage& stage, const Work& work,
                                         const LayerTimes& layers) const {
  PassTimes times;
  if (work.encoder.tokens > 0) times += encoder_times(gpu, stage, work.encoder, layers.encoder);
  if (work.has_second(stage, model_))
    times += second_.front().stage_times(gpu, stage_of_second(stage, model_), work.of_second());
  times += llm_times(gpu, stage, work.llm, layers.llm);
  return times;
}

PassTimes AnalyticCostModel::launch_times(const Stage& stage, const Work& work) const {
  const auto layers = [](const TransformerSpec& spec, int count, const Workload& load) {
    const double launches = spec.attention == AttentionKernel::softmax ? kSingleStepLaunches : 1;
    return load.tokens == 0 ? 0.0 : count * launches;
  };
  double encoder = layers(model_.encoder, stage.encoder_layers, work.encoder);
  if (work.has_second(stage, model_)) {
    const TransformerSpec& second = model_.second->encoder;
    encoder += layers(second, second.layers, work.encoder.of_second());
  }
  const double llm = layers(model_.llm, stage.llm_layers, work.llm);
  const double trained_encoder = stage.trained.encoder ? encoder : 0;
  const double trained_llm = stage.trained.in_llm() ? llm : 0;
  const Seconds launch = cluster_.software.layer_launch;
  const Seconds backward = launch * (trained_encoder + llm);
  const Seconds again = stage.recomputation == Recomputation::full ? backward : Seconds(0);
  return {launch * (encoder + llm), again + backward / 2, launch * (trained_encoder + trained_llm) / 2};
}

Seconds AnalyticCostModel::compute(Op op, const Stage& stage, const Work& work) const {
  Seconds slowest{0};
  for (const AnalyticCostModel& type : types_) slowest = std::max(slowest, type.compute(op, stage, work));
  if (!types_.empty()) return slowest;
  const Processor gpu = processor_of(stage);
  return launched_times(gpu, stage, work, layers_of(gpu, stage, work)).of(op);
}

/// Returns the part of a stage's times that any work of its encoders takes, however small.
PassTimes AnalyticCostModel::least_encoder_times(const Processor& gpu, const Stage& stage,
                                                 const Work& work) const {
  PassTimes times;
  if (work.encoder.tokens > 0) {
    const PassTimes layer = layer_times(gpu, model_.encoder, stage, {}, stage.trained.encoder, 0);
    times += encoder_times(gpu, stage, {}, layer);
  }
  if (work.has_second(stage, model_))
    times += second_.front().least_encoder_times(gpu, stage_of_second(stage, model_), work.of_second());
  return times;
}

std::optional<Seconds> AnalyticCostModel::convex_floor(Op op, const Stage& stage, const Work& work) const {
  if (!fastest_.empty()) return fastest_.front().convex_floor(op, stage, work);
  if (!model_.second || work.encoder.empty()) return compute(op, stage, work);
  const Processor gpu = processor_of(stage);
  return stage_times(gpu, stage, work).of(op) - least_encoder_times(gpu, stage, work).of(op);
}

PassTimes AnalyticCostModel::launched_times(const Processor& gpu, const Stage& stage, const Work& work,
                                            const LayerTimes& layers) const {
  PassTimes times = stage_times(gpu, stage, work, layers);
  const PassTimes launches = launch_times(stage, work);
  for (const auto pass : {&PassTimes::forward, &PassTimes::backward_input, &PassTimes::backward_weight}) {
    times.*pass = std::max(times.*pass, launches.*pass);
  }
  return times;
}

Seconds AnalyticCostModel::both_passes(const Stage& stage, const Work& work) const {
  if (!types_.empty()) return SumCostModel::both_passes(stage, work);
  const Processor gpu = processor_of(stage);
  const PassTimes times = launched_times(gpu, stage, work, layers_of(gpu, stage, work));
  return times.forward + times.of(Op::backward);
}

std::vector<Nanoseconds> AnalyticCostModel::compute_times(const Program& program) const {
  if (!types_.empty() || program.stages.empty()) return SumCostModel::compute_times(program);
  // With equal work, a layer takes equally long on all stages of one kind, and a stage is priced once for all
  // passes of a microbatch.
  const std::vector<int> kinds = kinds_of_layers(program.stages);
  std::vector<std::vector<std::optional<LayerTimes>>> layers(
      static_cast<std::size_t>(std::ranges::max(kinds) + 1),
      std::vector<std::optional<LayerTimes>>(program.works.size()));
  std::vector<Nanoseconds> durations(program.instructions.size(), Nanoseconds(0));
  std::vector<std::vector<std::optional<PassTimes>>> times(program.stages.size());
  for (const Group& group : program.groups) {
    for (auto& of_stage : times) of_stage.clear();
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!is_compute(instruction.op)) continue;
      const Stage& stage = program.stages[instruction.stage];
      const Work& work = program.works[instruction.index];
      std::vector<std::optional<PassTimes>>& of_stage = times[instruction.stage];
      of_stage.resize(program.microbatches);
      std::optional<PassTimes>& known = of_stage[instruction.microbatch];
      if (!known) {
        const Processor gpu = processor_of(stage);
        std::optional<LayerTimes>& layer = layers[kinds[instruction.stage]][instruction.index];
        if (!layer) layer = layers_of(gpu, stage, work);
        known = launched_times(gpu, stage, work, *layer);
      }
      durations[i] = to_nanoseconds(known->of(instruction.op));
    }
  }
  return durations;
}

double AnalyticCostModel::bandwidth(Op op, const Stage& stage, const Work& work) const {
  const Seconds time = compute(op, stage, work);
  if (time.count() == 0) return 0;
  return std::min(1.0, stage_times(Processor::of_traffic(cluster_), stage, work).of(op) / time);
}

double AnalyticCostModel::optimizer_bandwidth(const Stage& stage) const {
  return std::min(1.0, granted_share(stage) / cluster_.gpu.saturating_share);
}

Seconds AnalyticCostModel::optimizer_step(const Stage& stage) const {
  if (!fastest_.empty()) return fastest_.front().optimizer_step(stage);
  const double owned = static_cast<double>(trained_parameters(stage, model_)) / (stage.zero1 ? stage.dp : 1);
  const double bytes = stage.optimizer_states == OptimizerStates::fp32 ? kAdamBytes : kBf16AdamBytes;
  return memory_time(processor_of(stage), bytes * owned);
}

}  // namespace dflop
