#include "solver/planners/published/tables.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/program/lowering.hpp"

namespace dflop {
namespace {

constexpr std::array kTps = {1, 2, 4, 8};
constexpr std::array<std::int64_t, 7> kTiles = {1, 2, 4, 8, 16, 32, 64};
constexpr std::array<std::int64_t, 4> kTokens = {1024, 2048, 4096, 8192};
constexpr std::int64_t kMemoryTiles = 2;
constexpr std::int64_t kMemoryTokens = 1024;

/// Returns a stage with this many layers of one module and all of its ends.
Stage stage_of(const PlanRequest& request, bool encoder, int layers, int tp) {
  Stage stage;
  (encoder ? stage.encoder_layers : stage.llm_layers) = layers;
  stage.front = stage.connector = encoder;
  stage.embedding = stage.head = !encoder;
  stage.tp = tp;
  stage.recomputation = recomputation_of(request.options, encoder);
  stage.sequence_parallel = request.options.sequence_parallel;
  stage.zero1 = false;
  stage.trained = request.options.trained;
  return stage;
}

/// Returns the values of tp for which a module with this many heads is profiled.
std::vector<int> tps_of(const PlanRequest& request, int heads) {
  std::vector<int> tps;
  for (const int tp : kTps) {
    if (heads % tp == 0 && request.cluster.gpus_per_node % tp == 0) tps.push_back(tp);
  }
  return tps;
}

double milliseconds(const PlanRequest& request, const Stage& stage, const Work& work) {
  return 1000 * request.cost.both_passes(stage, work).count();
}

/// Returns the most memory of one rank during forward and loss, in bytes.
double forward_peak(const PlanRequest& request, Stage stage, const Work& work) {
  constexpr double kLossBytes = 4;
  stage.head = false;
  // Without work, a cost model may still count what its training code holds at all times.
  const std::int64_t passing = request.cost.workspace(Op::forward, stage, work).count -
                               request.cost.workspace(Op::forward, stage, {}).count;
  // The head keeps the inputs of its norm and of its product.
  const TransformerSpec& llm = request.model.llm;
  const double loss = static_cast<double>(work.llm.tokens) *
                      (2.0 * kBf16Bytes * llm.hidden + kLossBytes * static_cast<double>(llm.vocabulary));
  return static_cast<double>(request.cost.activation(stage, work).count) +
         std::max(static_cast<double>(passing), loss);
}

MemoryRow memory_row(const PlanRequest& request, const Stage& stage, std::int64_t units, const Work& work) {
  constexpr double kTrained = 10;   // bytes per parameter: weight, gradient, bucket and two moments in bf16
  constexpr double kAfterStep = 8;  // without the gradient
  const auto parameters = static_cast<double>(stage_parameters(stage, request.model));
  const double trained = static_cast<double>(trained_parameters(stage, request.model)) / parameters;
  const auto weights = static_cast<double>(request.cost.model_state(stage).parameters.count);
  const auto state = [&](double of_trained) {
    return weights * (1 + (of_trained / kBf16Bytes - 1) * trained) / kGib;
  };
  return {stage.tp,        std::max(stage.encoder_layers, stage.llm_layers),
          units,           forward_peak(request, stage, work) / kGib,
          state(kTrained), state(kAfterStep)};
}

void measure_encoder(const PlanRequest& request, std::int64_t tile_pairs, PublishedTables& tables) {
  const auto tiles = [&](std::int64_t count) {
    return Work{{count, count * tables.tile_tokens, count * tile_pairs}, {}};
  };
  const int layers = std::min(16, request.model.encoder.layers);
  for (const int tp : tps_of(request, request.model.encoder.heads)) {
    for (const std::int64_t count : kTiles) {
      const Stage stage = stage_of(request, true, layers, tp);
      tables.encoder_times.push_back({tp, layers, count, milliseconds(request, stage, tiles(count))});
    }
    for (const int few : {4, 8}) {
      const Stage stage = stage_of(request, true, few, tp);
      tables.encoder_memory.push_back(memory_row(request, stage, kMemoryTiles, tiles(kMemoryTiles)));
    }
  }
}

void measure_llm(const PlanRequest& request, PublishedTables& tables) {
  const int layers = std::min(4, request.model.llm.layers);
  for (const int tp : tps_of(request, request.model.llm.heads)) {
    for (const std::int64_t tokens : kTokens) {
      const Stage stage = stage_of(request, false, layers, tp);
      const auto row = [&](std::int64_t pairs) {
        return TimeRow{tp, layers, tokens, milliseconds(request, stage, {{}, {1, tokens, pairs}})};
      };
      tables.llm_times.push_back(row(tokens * tokens));
      tables.llm_times_without_attention.push_back(row(0));
    }
    for (const int few : {3, 4}) {
      const Stage stage = stage_of(request, false, few, tp);
      const Work work{{}, {1, kMemoryTokens, kMemoryTokens * kMemoryTokens}};
      tables.llm_memory.push_back(memory_row(request, stage, kMemoryTokens, work));
    }
  }
}

}  // namespace

PublishedTables published_tables(const PlanRequest& request) {
  Workload all;
  for (const Sample& item : request.profile) all += item.encoder();
  const auto mean = [&](std::int64_t count) {
    return std::max<std::int64_t>(
        1, std::llround(static_cast<double>(count) / static_cast<double>(all.sequences)));
  };
  PublishedTables tables;
  tables.tile_tokens = mean(all.tokens);
  for (const Sample& item : request.profile) {
    tables.tiles.push_back(static_cast<double>(item.encoder().tokens) /
                           static_cast<double>(tables.tile_tokens));
    tables.tokens.push_back(static_cast<double>(item.llm_tokens));
  }
  measure_encoder(request, mean(all.attention_pairs), tables);
  measure_llm(request, tables);
  return tables;
}

}  // namespace dflop
