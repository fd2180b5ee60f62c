// A StageModule is a pipeline stage on one rank. It holds the stage's layers of encoder, connector and LLM,
// and runs their forward and backward.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "backend/model/ends.hpp"
#include "backend/model/input_embedding.hpp"
#include "backend/model/transformer_layer.hpp"

namespace dflop {

/// A StageInput is a stage's input for a microbatch, in addition to the output of the previous stage.
struct StageInput {
  std::optional<EncoderInput> encoder;  ///< set for stages with encoder layers or the connector
  std::optional<LlmInput> llm;          ///< set for stages with LLM layers
  double token_weight = 0;
  bool turns_back = true;  ///< whether a backward follows
};

/// A StageTape holds the data that a stage keeps from a microbatch's forward to its backward.
struct StageTape {
  InputTape input;
  StackTape encoder;
  ConnectorTape connector;
  TokenTape embedding;
  StackTape llm;
  LmHeadTape head;
};

/// A StageModule computes one stage and holds its parameters.
class StageModule {
 public:
  using Completed = std::function<void(std::int64_t from)>;

  /// Takes parameters from `weights` or, if it is null, draws them from `seed`. Optimizer states are cut into
  /// `shards` shards; this rank holds shard number `shard`. The referenced objects must outlive the module.
  StageModule(const ModelSpec& model, const StagePlace& place, int shards, int shard, std::uint64_t seed,
              const RankContext& rank, const WeightSource* weights = nullptr);

  const StagePlace& place() const { return place_; }
  ParameterStore& parameters() { return store_; }

  /// The next four functions return the shapes of the activations that this rank receives from the previous
  /// stage and sends to the next stage. Between encoder and LLM they have all rows; between two stages of the
  /// same module, the rows that the rank holds.
  std::int64_t input_columns() const {
    return place_.stage.encoder_layers > 0 ? model_.encoder.hidden : model_.llm.hidden;
  }
  std::int64_t input_rows(const StageInput& input) const;
  std::int64_t output_columns() const {
    return connector_ || place_.stage.llm_layers > 0 ? model_.llm.hidden : model_.encoder.hidden;
  }
  std::int64_t output_rows(const StageInput& input) const;

  /// Extends the tables that are kept between microbatches so that they cover an input. forward() then spends
  /// no time on them.
  void prepare(const StageInput& input) const;
  /// Runs the forward and returns its output. A stage with the head instead adds to `loss`, [1, 1], and
  /// returns an empty tensor.
  Tensor forward(Tensor in, const StageInput& input, Sums loss, StageTape& tape) const;
  /// Returns the logits of some rows, [rows, the rank's part of the vocabulary], for a stage with all of the
  /// LLM. It keeps no activations. `encoded` holds the encoder's tokens.
  Tensor logits(const Tensor& encoded, const LlmInput& input, std::vector<std::int32_t> rows) const;
  /// Runs backward_input() and backward_weight() in one pass. Whenever more gradients are final, it calls
  /// `completed`, if set, with the value from which on parameters().gradients() is final.
  Tensor backward(Tensor d_out, StageTape& tape, const Completed& completed = {}) const;
  /// Takes the gradient of the output and returns the gradient of the input; the first stage returns an empty
  /// tensor. The tape then holds the data for backward_weight(). This call also adds to the gradients of
  /// norms and embedding, because they are cheap. All gradients of a microbatch are complete after both
  /// parts.
  Tensor backward_input(Tensor d_out, StageTape& tape) const;
  /// Adds to the gradients of all parameters that backward_input() leaves out, and frees the tape.
  void backward_weight(StageTape& tape) const;

 private:
  /// Runs a backward layer by layer, so that each layer frees its memory at once. If `weights` is false, runs
  /// only the input part.
  Tensor turn_back(Tensor d_out, bool weights, StageTape& tape, const Completed& completed) const;
  Tensor encode(Tensor in, const EncoderInput& input, StageTape& tape) const;
  Tensor encode_backward(Tensor d_out, bool weights, StageTape& tape, const Completed& completed) const;
  std::function<void(int)> after_layers(bool encoder, const Completed& completed) const;
  std::int64_t complete_from(bool encoder, int layer) const;

  const ModelSpec& model_;
  StagePlace place_;
  const RankContext& rank_;
  ParameterStore store_;
  mutable SequencePacker encoder_packer_;  // keeps tables between microbatches
  mutable SequencePacker llm_packer_;
  std::unique_ptr<InputEmbedding> input_;
  TransformerStack encoder_;
  std::optional<Connector> connector_;
  std::optional<TokenEmbedding> embedding_;
  TransformerStack llm_;
  std::optional<LmHead> head_;
};

}  // namespace dflop
