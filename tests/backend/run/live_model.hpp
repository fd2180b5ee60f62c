// A model small enough to differentiate by hand, batches for it, and runs of them.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/host/world.hpp"
#include "backend/run/live_executor.hpp"
#include "core/program/lowering.hpp"
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

/// Every third sample is text alone.
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

/// Sample i in bin i mod bins.
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

/// A plan at work.
struct LiveRun {
  Plan plan;
  ModelSpec model;
  std::vector<Sample> samples;
  Assignment assignment;
  Program program;
  std::unique_ptr<World> world;
  std::unique_ptr<LiveExecutor> executor;

  LiveRun(const Plan& p, const std::vector<Sample>& batch, DType dtype)
      : LiveRun(p, live_model(), batch, dealt(p, batch.size()), plan_order(p), dtype) {}
  LiveRun(const Plan& p, const ModelSpec& m, const std::vector<Sample>& batch, const Assignment& to_bins,
          const PipelineOrder& order, DType dtype, std::optional<Bytes> memory = {}, int cores = 0)
      : plan(p), model(m), samples(batch), assignment(to_bins) {
    plan.gbs = static_cast<int>(batch.size());
    program = lower(plan, model, samples, assignment, order);
    world = std::make_unique<HostWorld>(program.ranks(), HostWorldOptions{Seconds(30), memory, cores});
    executor = std::make_unique<LiveExecutor>(plan, model, program, *world, LiveOptions{dtype, 7});
  }
  /// On another world, which is made for the plan's number of ranks.
  LiveRun(const Plan& p, const std::vector<Sample>& batch, DType dtype,
          const std::function<std::unique_ptr<World>(int ranks)>& make)
      : plan(p), model(live_model()), samples(batch), assignment(dealt(p, batch.size())) {
    plan.gbs = static_cast<int>(batch.size());
    program = lower(plan, model, samples, assignment, plan_order(plan));
    world = make(program.ranks());
    executor = std::make_unique<LiveExecutor>(plan, model, program, *world, LiveOptions{dtype, 7});
  }
  LiveRun(const LiveRun&) = delete;

  LiveResult step(bool update, std::int64_t number = 1) {
    const BatchContent content(plan, model, samples, assignment, 3);
    AdamWStep optimizer;
    optimizer.step = number;
    return executor->run({program, content, optimizer, update});
  }
};

/// The L2 norm of the difference over that of the expected values.
inline double distance(const WholeTensor& found, const WholeTensor& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    difference += std::pow(found.values[i] - expected.values[i], 2);
    norm += std::pow(expected.values[i], 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace dflop::testing
