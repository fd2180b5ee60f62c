#include "solver/planners/published/profile.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/flops.hpp"

namespace dflop {
namespace {

constexpr std::array kTps = {1, 2, 4, 8};
constexpr std::array<std::int64_t, 7> kTiles = {1, 2, 4, 8, 16, 32, 64};
constexpr std::array<std::int64_t, 4> kTokens = {1024, 2048, 4096, 8192};
constexpr double kStateBytes = 10;  // per parameter: bf16 weight, gradient, two moments and DDP's bucket
constexpr double kBf16 = 2;

/// Returns a stage with this many layers of one module and all of its ends.
Stage stage_of(const PlanRequest& request, bool encoder, int layers, int tp) {
  Stage stage;
  (encoder ? stage.encoder_layers : stage.llm_layers) = layers;
  stage.connector = encoder;
  stage.embedding = stage.head = !encoder;
  stage.tp = tp;
  stage.recomputation = request.options.recomputation;
  stage.sequence_parallel = request.options.sequence_parallel;
  stage.zero1 = false;
  stage.trained = request.options.trained;
  return stage;
}

double seconds(const CostModel& cost, const Stage& stage, const Work& work) {
  return cost.both_passes(stage, work).count();
}

/// Returns the mean encoder sequence of the data.
Workload mean_tile(std::span<const Sample> items) {
  Workload all;
  for (const Sample& item : items) all += item.encoder();
  const auto mean = [&](std::int64_t count) {
    return std::max<std::int64_t>(
        1, std::llround(static_cast<double>(count) / static_cast<double>(all.sequences)));
  };
  return {1, mean(all.tokens), mean(all.attention_pairs)};
}

/// Fits memory as lines over layers, from two numbers of layers at one microbatch with this many units.
void fit_memory(ModuleProfile& profile, const PlanRequest& request, bool encoder, std::array<int, 2> layers,
                const Work& work, double units) {
  std::array<double, 2> state{};
  std::array<double, 2> activation{};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Stage stage = stage_of(request, encoder, layers[i], profile.tp);
    const double of_trained = static_cast<double>(trained_parameters(stage, request.model)) /
                              static_cast<double>(stage_parameters(stage, request.model));
    state[i] = (1 + (kStateBytes / kBf16 - 1) * of_trained) *
               static_cast<double>(request.cost.model_state(stage).parameters.count);
    activation[i] = static_cast<double>(request.cost.activation(stage, work).count) / units;
  }
  profile.state_of_layer = (state[1] - state[0]) / (layers[1] - layers[0]);
  profile.state_base = state[0] - profile.state_of_layer * layers[0];
  profile.activation_of_layer = (activation[1] - activation[0]) / (layers[1] - layers[0]);
  profile.activation_base = activation[0] - profile.activation_of_layer * layers[0];
}

/// Returns the values of tp for which a module with this many heads is profiled.
std::vector<int> tps_of(const PlanRequest& request, int heads) {
  std::vector<int> tps;
  for (const int tp : kTps) {
    if (heads % tp == 0 && request.cluster.gpus_per_node % tp == 0) tps.push_back(tp);
  }
  return tps;
}

template <typename Values>
std::vector<double> as_doubles(const Values& values) {
  return {values.begin(), values.end()};
}

ModuleTables encoder_tables(const PlanRequest& request) {
  const ModelSpec& model = request.model;
  const Workload tile = mean_tile(request.profile);
  const auto tiles = [&](std::int64_t count) {
    return Workload{count, count * tile.tokens, count * tile.attention_pairs};
  };
  ModuleTables tables;
  tables.layers = model.encoder.layers;
  const int layers = std::min(16, tables.layers);
  const auto flop = [&](const Workload& work, int count) {
    return (layer_forward_flop(model.encoder, work) * count + connector_flop(model, work)).count;
  };
  for (const int tp : tps_of(request, model.encoder.heads)) {
    const Stage stage = stage_of(request, true, layers, tp);
    std::vector<double> throughput;
    for (const std::int64_t count : kTiles) {
      const double time = seconds(request.cost, stage, {tiles(count), {}});
      throughput.push_back(flop(tiles(count), layers) / (time * tp));
    }
    ModuleProfile& profile =
        tables.profiles.emplace_back(ModuleProfile{tp, Curve(as_doubles(kTiles), std::move(throughput))});
    fit_memory(profile, request, true, {4, 8}, {tiles(2), {}}, 2);
  }
  const auto items = static_cast<double>(request.profile.size());
  for (const Sample& item : request.profile) {
    const auto units = static_cast<double>(item.encoder().tokens) / static_cast<double>(tile.tokens);
    tables.mean_flop += flop(item.encoder(), tables.layers) / items;
    tables.mean_units += units / items;
    tables.most_units = std::max(tables.most_units, units);
  }
  return tables;
}

/// Returns the LLM's throughput. It combines the throughput of the linear layers and of attention (the mean
/// over the data), weighted by their fractions of the FLOP.
Curve llm_throughput(const PlanRequest& request, int tp, int layers) {
  const TransformerSpec& llm = request.model.llm;
  const Stage stage = stage_of(request, false, layers, tp);
  const auto attention_part = [&](const Workload& work, int count) {
    return (attention_flop(llm, work) * count).count;
  };
  const auto linear_part = [&](const Workload& work, int count) {
    return (layer_forward_flop(llm, work) * count + head_flop(llm, work)).count - attention_part(work, count);
  };
  std::vector<double> linear;
  std::vector<double> attention;
  for (const std::int64_t tokens : kTokens) {
    const Workload work{1, tokens, tokens * tokens};
    const double without = seconds(request.cost, stage, {{}, {1, tokens, 0}});
    const double of_attention = seconds(request.cost, stage, {{}, work}) - without;
    linear.push_back(linear_part(work, layers) / (without * tp));
    attention.push_back(of_attention > 0 ? attention_part(work, layers) / (of_attention * tp) : 0);
  }
  const Curve of_attention(as_doubles(kTokens), std::move(attention));
  double linear_flop = 0;
  double attention_flop = 0;
  double mean_of_attention = 0;
  for (const Sample& item : request.profile) {
    linear_flop += linear_part(item.llm(), llm.layers);
    attention_flop += attention_part(item.llm(), llm.layers);
    mean_of_attention += of_attention.extended(static_cast<double>(item.llm_tokens));
  }
  mean_of_attention /= static_cast<double>(request.profile.size());
  const double share = attention_flop / (linear_flop + attention_flop);
  for (double& throughput : linear) throughput = (1 - share) * throughput + share * mean_of_attention;
  return {as_doubles(kTokens), std::move(linear)};
}

ModuleTables llm_tables(const PlanRequest& request) {
  ModuleTables tables;
  tables.layers = request.model.llm.layers;
  for (const int tp : tps_of(request, request.model.llm.heads)) {
    ModuleProfile& profile = tables.profiles.emplace_back(
        ModuleProfile{tp, llm_throughput(request, tp, std::min(4, tables.layers))});
    fit_memory(profile, request, false, {3, 4}, {{}, {1, 1024, 1024 * 1024}}, 1024);
  }
  const auto items = static_cast<double>(request.profile.size());
  for (const Sample& item : request.profile) {
    const auto tokens = static_cast<double>(item.llm_tokens);
    tables.mean_flop += llm_flop(request.model, item.llm()).count / items;
    tables.mean_units += tokens / items;
    tables.most_units = std::max(tables.most_units, tokens);
  }
  return tables;
}

}  // namespace

double Curve::extended(double x) const {
  const auto above = std::upper_bound(x_.begin() + 1, x_.end() - 1, x);
  const auto i = static_cast<std::size_t>(above - x_.begin());
  return y_[i - 1] + (y_[i] - y_[i - 1]) * ((x - x_[i - 1]) / (x_[i] - x_[i - 1]));
}

PublishedProfile published_profile(const PlanRequest& request) {
  return {encoder_tables(request), llm_tables(request)};
}

}  // namespace dflop
