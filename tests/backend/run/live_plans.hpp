// A model small enough for numerical derivatives, with batches and plans for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"
#include "core/support/random.hpp"

namespace dflop::testing {

inline ModelSpec live_model() {
  ModelSpec model;
  model.name = "live";
  model.encoder.name = "encoder";
  model.encoder.layers = 3;
  model.encoder.hidden = 16;
  model.encoder.ffn = 24;
  model.encoder.heads = 4;
  model.encoder.kv_heads = 4;
  model.encoder.head_dim = 4;
  model.connector.widths = {16, 20, 24};
  model.connector.merge = 1;
  model.llm.name = "llm";
  model.llm.layers = 4;
  model.llm.hidden = 24;
  model.llm.ffn = 32;
  model.llm.heads = 4;
  model.llm.kv_heads = 2;
  model.llm.head_dim = 6;
  model.llm.gated_mlp = true;
  model.llm.causal = true;
  model.llm.vocabulary = 64;
  return model;
}

/// The live model with a second encoder of two layers that merges pairs of rows.
inline ModelSpec hearing_model() {
  ModelSpec model = live_model();
  model.name = "hearing";
  SecondEncoder& second = model.second.emplace();
  second.encoder = model.encoder;
  second.encoder.name = "ears";
  second.encoder.layers = 2;
  second.encoder.hidden = 8;
  second.encoder.ffn = 12;
  second.encoder.heads = second.encoder.kv_heads = 2;
  second.connector = {{16, 24}, 2};
  return model;
}

/// A model with rows and columns that tp does not divide, so that some ranks have one more: 67 words become
/// 33 and 34.
inline ModelSpec uneven_model() {
  ModelSpec model = live_model();
  model.name = "uneven";
  model.encoder.ffn = 29;
  model.llm.ffn = 37;
  model.llm.vocabulary = 67;
  model.connector.widths.at(1) = 21;
  return model;
}

/// Every third sample is only text.
inline std::vector<Sample> live_samples(int count, std::uint64_t seed) {
  Random random(seed);
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    Sample sample;
    sample.id = "s" + std::to_string(i);
    const auto text = static_cast<std::int64_t>(2 + random.below(12));
    if (i % 3 != 2) {
      const auto tiles = static_cast<std::int64_t>(1 + random.below(3));
      sample.modality = Modality::image;
      sample.encoder_sequences = {{tiles, 6, 36}};
      sample.encoder_output_tokens = 4 * tiles;
    }
    sample.llm_tokens = sample.encoder_output_tokens + text;
    samples.push_back(sample);
  }
  return samples;
}

/// Assigns sample i to bin i mod bins.
inline Assignment dealt(const Plan& plan, std::size_t samples) {
  Assignment assignment{plan.microbatches, plan.llm.dp, {}};
  for (std::size_t i = 0; i < samples; ++i) {
    assignment.bin.push_back(static_cast<std::int32_t>(i % static_cast<std::size_t>(plan.bins())));
  }
  return assignment;
}

inline Plan uniform_plan(int tp, int pp, int dp, int microbatches) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {tp, pp, dp, split_layers(3, pp)};
  plan.llm = {tp, pp, dp, split_layers(4, pp)};
  for (int s = 0; s < pp; ++s) {  // the encoder on the first stages, the LLM on the last
    if (pp > 1) plan.encoder.layers[static_cast<std::size_t>(s)] = s == 0 ? 3 : 0;
    if (pp > 1) plan.llm.layers[static_cast<std::size_t>(s)] = 0;
  }
  if (pp > 1) plan.llm.layers.back() = 3;
  if (pp > 1) plan.llm.layers[static_cast<std::size_t>(pp - 2)] += 1;
  plan.microbatches = microbatches;
  plan.recomputation = Recomputation::none;
  plan.sequence_parallel = false;
  return plan;
}

inline Plan disaggregated_plan(ModulePlan encoder, ModulePlan llm, int microbatches) {
  Plan plan;
  encoder.layers = split_layers(3, encoder.pp);
  llm.layers = split_layers(4, llm.pp);
  plan.encoder = encoder;
  plan.llm = llm;
  plan.microbatches = microbatches;
  plan.recomputation = Recomputation::none;
  plan.sequence_parallel = false;
  return plan;
}

/// Encoder and LLM on shared devices. Each module has one rank on every device.
inline Plan shared_plan(const ModulePlan& encoder, const ModulePlan& llm, double share, int microbatches) {
  Plan plan = disaggregated_plan(encoder, llm, microbatches);
  plan.layout = Layout::shared;
  plan.encoder_share = share;
  return plan;
}

}  // namespace dflop::testing
