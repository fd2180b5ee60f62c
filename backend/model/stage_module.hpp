// A StageModule is a pipeline stage on one rank: what it holds of encoder, connector and LLM, forward and
// backward.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "backend/model/ends.hpp"
#include "backend/model/input_embedding.hpp"
#include "backend/model/transformer_layer.hpp"

namespace dflop {

/// A StageInput is what a stage gets of a microbatch beside the output of the stage before it.
struct StageInput {
  std::optional<EncoderInput> encoder;  ///< of stages with encoder layers or the connector
  std::optional<LlmInput> llm;          ///< of stages with LLM layers
  double token_weight = 0;
  bool turns_back = true;  ///< a backward follows
};

/// A StageTape is what a stage keeps of a microbatch from its forward to its backward.
struct StageTape {
  InputTape input;
  StackTape encoder;
  ConnectorTape connector;
  TokenTape embedding;
  StackTape llm;
  LmHeadTape head;
};

/// A StageModule computes one stage with its parameters.
class StageModule {
 public:
  using Completed = std::function<void(std::int64_t from)>;

  /// Parameters come from `weights` or, where that is null, from `seed`; optimizer states are cut into
  /// `shards`, of which this rank has `shard`. What is referred to outlives it.
  StageModule(const ModelSpec& model, const StagePlace& place, int shards, int shard, std::uint64_t seed,
              const RankContext& rank, const WeightSource* weights = nullptr);

  const StagePlace& place() const { return place_; }
  ParameterStore& parameters() { return store_; }

  /// These return what this rank has of a microbatch when it comes from the stage before, and goes to the
  /// stage after this one: between encoder and LLM all rows, between stages of one of them those that it
  /// holds.
  std::int64_t input_columns() const {
    return place_.stage.encoder_layers > 0 ? model_.encoder.hidden : model_.llm.hidden;
  }
  std::int64_t input_rows(const StageInput& input) const;
  std::int64_t output_columns() const {
    return connector_ || place_.stage.llm_layers > 0 ? model_.llm.hidden : model_.encoder.hidden;
  }
  std::int64_t output_rows(const StageInput& input) const;

  /// Has what is kept from one microbatch to the next ready for an input, so that no forward has to.
  void prepare(const StageInput& input) const;
  /// Returns the output; a stage with the head adds to `loss`, [1, 1], and has none.
  Tensor forward(Tensor in, const StageInput& input, Sums loss, StageTape& tape) const;
  /// Returns the logits of some rows of a stage with all of the LLM, [rows, the rank's part of the
  /// vocabulary], and keeps nothing. `encoded` has the encoder's tokens.
  Tensor logits(const Tensor& encoded, const LlmInput& input, std::vector<std::int32_t> rows) const;
  /// Does backward_input() and backward_weight() in one. Calls `completed`, if there is one, whenever more of
  /// the gradients, parameters().gradients() from a value on, is what it is after the call.
  Tensor backward(Tensor d_out, StageTape& tape, const Completed& completed = {}) const;
  /// Returns the gradient of the input from that of the output; none before the first stage. The tape then
  /// has what backward_weight() reads. Adds to the gradients of norms and embedding, which are cheap: those
  /// of a microbatch are complete after both parts.
  Tensor backward_input(Tensor d_out, StageTape& tape) const;
  /// Adds to the gradients of all other parameters and frees the tape.
  void backward_weight(StageTape& tape) const;

 private:
  /// Does one part of a backward or both, layer by layer, so that each frees its memory at once.
  Tensor turn_back(Tensor d_out, bool weights, StageTape& tape, const Completed& completed) const;
  Tensor encode(Tensor in, const EncoderInput& input, StageTape& tape) const;
  Tensor encode_backward(Tensor d_out, bool weights, StageTape& tape, const Completed& completed) const;
  std::function<void(int)> after_layers(bool encoder, const Completed& completed) const;
  std::int64_t complete_from(bool encoder, int layer) const;

  const ModelSpec& model_;
  StagePlace place_;
  const RankContext& rank_;
  ParameterStore store_;
  mutable SequencePacker encoder_packer_;  // keeps tables of what it has seen
  mutable SequencePacker llm_packer_;
  std::unique_ptr<InputEmbedding> input_;
  TransformerStack encoder_;
  std::optional<Connector> connector_;
  std::optional<TokenEmbedding> embedding_;
  TransformerStack llm_;
  std::optional<LmHead> head_;
};

}  // namespace dflop
