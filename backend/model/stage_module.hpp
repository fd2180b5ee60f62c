// A pipeline stage on one rank: its layers and ends, forward and backward.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/model/connector.hpp"
#include "backend/model/language_ends.hpp"
#include "backend/model/patch_embedding.hpp"
#include "backend/model/transformer_layer.hpp"

namespace dflop {

/// What a stage gets of a microbatch beside the output of the stage before it.
struct StageInput {
  std::optional<EncoderInput> encoder;  ///< of stages with encoder layers or the connector
  std::optional<LlmInput> llm;          ///< of stages with LLM layers
  double token_weight = 0;
};

/// What a stage keeps of a microbatch from its forward to its backward.
struct StageTape {
  PackedSequences encoder_sequences;
  PackedSequences llm_sequences;
  PatchTape patches;
  std::vector<LayerTape> encoder_layers;
  ConnectorTape connector;
  EmbeddingTape embedding;
  std::vector<LayerTape> llm_layers;
  HeadTape head;
};

class StageModule {
 public:
  /// Parameters are drawn from `seed`; optimizer states are cut into `shards`, of which this rank has
  /// `shard`. What is referred to outlives it.
  StageModule(const ModelSpec& model, const StagePlace& place, int shards, int shard, std::uint64_t seed,
              const RankContext& rank);

  const StagePlace& place() const { return place_; }
  ParameterStore& parameters() { return store_; }

  /// Rows that this rank has of a microbatch when it comes from the stage before, and goes to the stage after
  /// this one: between encoder and LLM all, between stages of one of them those that it holds.
  std::int64_t input_columns() const;
  std::int64_t input_rows(const StageInput& input) const;
  std::int64_t output_columns() const;
  std::int64_t output_rows(const StageInput& input) const;

  /// The output; a stage with the head adds to `loss`, [1, 1], and has none.
  Tensor forward(Tensor in, const StageInput& input, Sums loss, StageTape& tape) const;
  /// backward_input() and backward_weight() in one.
  Tensor backward(Tensor d_out, StageTape& tape) const;
  /// The gradient of the input from that of the output; none before the first stage. The tape then has what
  /// backward_weight() reads. Adds to the gradients of norms and embedding, which are cheap: those of a
  /// microbatch are complete after both parts.
  Tensor backward_input(Tensor d_out, StageTape& tape) const;
  /// Adds to the gradients of all other parameters and frees the tape.
  void backward_weight(StageTape& tape) const;

 private:
  /// Of one part or of both, layer by layer, so that each frees its memory at once.
  Tensor turn_back(Tensor d_out, bool weights, StageTape& tape) const;
  Tensor encode(Tensor in, const EncoderInput& input, StageTape& tape) const;
  Tensor encode_backward(Tensor d_out, bool weights, StageTape& tape) const;

  const ModelSpec& model_;
  StagePlace place_;
  const RankContext& rank_;
  ParameterStore store_;
  std::optional<PatchEmbedding> patches_;
  std::vector<TransformerLayer> encoder_layers_;
  std::optional<Connector> connector_;
  std::optional<Embedding> embedding_;
  std::vector<TransformerLayer> llm_layers_;
  std::optional<Head> head_;
};

}  // namespace dflop
