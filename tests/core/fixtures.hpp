// Small models, clusters, plans and random samples shared by several tests.
#pragma once

#include <string>

#include "core/iteration/planner.hpp"
#include "core/program/lowering.hpp"
#include "core/support/random.hpp"

namespace dflop::testing {

/// 4 encoder and 6 LLM layers with tiny widths.
inline ModelSpec tiny_model() {
  ModelSpec model;
  model.name = "tiny";
  model.max_tokens = 32768;
  model.encoder = {"vit", 4, 64, 256, 4, 4, 16, false, false, 0};
  model.connector = {{64, 128, 128}, 1};
  model.llm = {"decoder", 6, 128, 512, 8, 2, 16, true, true, 1000};
  return model;
}

inline ClusterSpec tiny_cluster(int nodes = 4, int gpus_per_node = 8) {
  ClusterSpec cluster;
  cluster.name = "tiny";
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus_per_node;
  return cluster;
}

inline Plan disaggregated_plan(ModulePlan encoder, ModulePlan llm, int microbatches, int gbs) {
  Plan plan;
  plan.model = "tiny";
  plan.cluster = "tiny";
  plan.layout = Layout::disaggregated;
  plan.encoder = std::move(encoder);
  plan.llm = std::move(llm);
  plan.microbatches = microbatches;
  plan.gbs = gbs;
  return plan;
}

inline Sample random_sample(Random& random, int index) {
  Sample sample;
  sample.id = "s" + std::to_string(index);
  const auto groups = random.below(3);  // 0: text only
  for (std::uint64_t g = 0; g < groups; ++g) {
    const auto tokens = static_cast<std::int64_t>(1 + random.below(50));
    sample.encoder_sequences.push_back(
        {static_cast<std::int64_t>(1 + random.below(9)), tokens, tokens * tokens});
  }
  if (groups > 0) sample.encoder_output_tokens = static_cast<std::int64_t>(1 + random.below(400));
  sample.llm_tokens = sample.encoder_output_tokens + static_cast<std::int64_t>(1 + random.below(300));
  return sample;
}

inline Batch random_batch(Random& random, int samples) {
  Batch batch;
  for (int i = 0; i < samples; ++i) batch.push_back(random_sample(random, i));
  return batch;
}

/// Puts one sample in every bin, and the others in random bins.
inline Assignment random_assignment(Random& random, const Plan& plan, std::size_t samples) {
  Assignment assignment{plan.microbatches, plan.llm.dp, {}};
  for (std::size_t i = 0; i < samples; ++i) {
    const auto bins = static_cast<std::size_t>(plan.bins());
    assignment.bin.push_back(static_cast<std::int32_t>(i < bins ? i : random.below(bins)));
  }
  return assignment;
}

}  // namespace dflop::testing
