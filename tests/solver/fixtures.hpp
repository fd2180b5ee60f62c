// Small data, models and costs with results that can be worked out by hand.
#pragma once

#include <algorithm>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/support/random.hpp"
#include "sim/engine.hpp"
#include "solver/bins.hpp"

namespace dflop::testing {

/// A token takes `token_s` per layer forward and twice that backward, divided by tp. Every pass of a stage
/// with work takes `pass_s` in addition. Memory: `layer_bytes` per layer and `token_bytes` per token, divided
/// by tp. Communication is free.
class LinearCostModel : public CostModel {
 public:
  double token_s = 1e-3;
  double pass_s = 0;
  int embedding_layers = 0;
  int head_layers = 0;
  std::int64_t layer_bytes = 0;
  std::int64_t token_bytes = 0;

  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    const int llm_layers =
        stage.llm_layers + (stage.embedding ? embedding_layers : 0) + (stage.head ? head_layers : 0);
    const double layer_tokens = static_cast<double>(stage.encoder_layers * work.encoder.tokens) +
                                static_cast<double>(llm_layers * work.llm.tokens);
    if (layer_tokens == 0) return Seconds(0);
    return Seconds((op == Op::forward ? 1 : 2) * token_s * layer_tokens / stage.tp + pass_s);
  }
  bool knows_shares() const override { return true; }  // shares change nothing
  Seconds message(const Message&, const Program&) const override { return Seconds(0); }
  Seconds all_reduce(const Collective&, const Program&) const override { return Seconds(0); }
  Seconds optimizer_step(const Stage&) const override { return Seconds(0); }
  ModelState model_state(const Stage& stage) const override {
    return {{layer_bytes * (stage.encoder_layers + stage.llm_layers) / stage.tp}, {}, {}};
  }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return {token_bytes *
            ((stage.encoder_layers > 0 ? work.encoder.tokens : 0) +
             (stage.llm_layers > 0 ? work.llm.tokens : 0)) /
            stage.tp};
  }
  Bytes workspace(Op, const Stage&, const Work&) const override { return {}; }
};

inline ModelSpec small_model(int encoder_layers, int llm_layers) {
  ModelSpec model;
  model.name = "small";
  model.encoder.layers = encoder_layers;
  model.encoder.hidden = 8;
  model.encoder.ffn = 8;
  model.encoder.heads = 1;
  model.encoder.kv_heads = 1;
  model.encoder.head_dim = 8;
  model.llm = model.encoder;
  model.llm.layers = llm_layers;
  return model;
}

inline ClusterSpec small_cluster(int nodes, int gpus_per_node, std::int64_t memory) {
  ClusterSpec cluster;
  cluster.name = "small";
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus_per_node;
  cluster.gpu.memory = Bytes{memory};
  return cluster;
}

/// `tiles` encoder sequences of 10 tokens.
inline Sample small_sample(std::int64_t tiles, std::int64_t llm_tokens) {
  Sample sample;
  if (tiles > 0) sample.encoder_sequences.push_back({tiles, 10, 100});
  sample.encoder_output_tokens = tiles;
  sample.llm_tokens = llm_tokens;
  return sample;
}

inline Batch small_random_batch(Random& random, int samples) {
  Batch batch;
  for (int i = 0; i < samples; ++i) {
    const std::int64_t tiles = static_cast<std::int64_t>(random.below(8));
    batch.push_back(small_sample(tiles, tiles + 1 + static_cast<std::int64_t>(random.below(100))));
  }
  return batch;
}

inline Plan disaggregated_plan(const ModelSpec& model, int gbs, int encoder_dp, int llm_dp,
                               int microbatches) {
  Plan plan;
  plan.gbs = gbs;
  plan.encoder = {1, 1, encoder_dp, {model.encoder.layers}};
  plan.llm = {1, 1, llm_dp, {model.llm.layers}};
  plan.microbatches = microbatches;
  return plan;
}

/// Items of a partition problem, with some zeros in the encoder's dimension and some equal items.
struct RandomItems {
  std::vector<double> encoder_s;
  std::vector<double> llm_s;

  RandomItems(Random& random, int items, bool whole) {
    for (int i = 0; i < items; ++i) {
      const bool repeat = i > 0 && random.below(4) == 0;
      const auto time = [&] { return whole ? static_cast<double>(1 + random.below(9)) : random.uniform(); };
      encoder_s.push_back(repeat ? encoder_s.back() : random.below(3) == 0 ? 0.0 : time());
      llm_s.push_back(repeat ? llm_s.back() : time());
    }
  }

  BinProblem problem(int bins) const { return {encoder_s, llm_s, bins}; }
};

/// The smallest max load over all assignments that leave no bin empty.
inline double brute_force(const BinProblem& problem) {
  std::vector<std::int32_t> bin(problem.items(), 0);
  double best = -1;
  while (true) {
    std::vector<bool> filled(problem.bins, false);
    for (const std::int32_t b : bin) filled[b] = true;
    if (std::find(filled.begin(), filled.end(), false) == filled.end()) {
      const double load = largest_load(problem, bin);
      if (best < 0 || load < best) best = load;
    }
    std::size_t digit = 0;
    while (digit < bin.size() && ++bin[digit] == problem.bins) bin[digit++] = 0;
    if (digit == bin.size()) return best;
  }
}

}  // namespace dflop::testing
