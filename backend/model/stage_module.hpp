// A StageModule is a pipeline stage on one rank. It holds the stage's layers of encoder, connector and LLM,
// and runs their forward and backward.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/model/encoder_branch.hpp"
#include "backend/model/ends.hpp"
#include "backend/model/transformer_layer.hpp"

namespace dflop {

/// A StageInput is a stage's input for a microbatch, except the output of the previous stage.
struct StageInput {
  std::optional<EncoderInput> encoder;  ///< set for stages with encoder layers or the connector
  std::optional<LlmInput> llm;          ///< set for stages with LLM layers
  double token_weight = 0;
  bool turns_back = true;  ///< whether a backward follows
};

/// A StageTape holds the data that a stage keeps from a microbatch's forward to its backward.
struct StageTape {
  BranchTape encoder;
  BranchTape second;
  IndexTensor sent_places;    ///< places of the first encoder's sent rows, if there is a second encoder
  IndexTensor second_places;  ///< places of the second encoder's sent rows
  TokenTape embedding;
  StackTape llm;
  std::vector<Tensor> deep;  ///< deep features from the previous stage, by LLM layer from the stage's first
  LmHeadTape head;
};

/// A StageModule computes one stage and holds its parameters.
class StageModule {
 public:
  using Completed = std::function<void(std::int64_t from)>;

  /// The initial parameters come from `weights` or, if that is null, are drawn from `seed`. Optimizer states
  /// are divided into `shards` shards; this rank holds shard number `shard`. The referenced objects must
  /// outlive the module.
  StageModule(const ModelSpec& model, const StagePlace& place, int shards, int shard, std::uint64_t seed,
              const RankContext& rank, const WeightSource* weights = nullptr);

  const StagePlace& place() const { return place_; }
  /// Returns the encoders whose input values forward() needs.
  TakenValues takes_values() const { return place_.takes_values(model_); }
  ParameterStore& parameters() { return store_; }

  /// The next four functions return the shape of the activations that this rank receives from the previous
  /// stage and sends to the next stage. Between encoder and LLM, the activations have all rows; between two
  /// stages of the same module, only the rows that the rank holds.
  std::int64_t input_columns() const;
  std::int64_t input_rows(const StageInput& input) const;
  std::int64_t output_columns() const;
  std::int64_t output_rows(const StageInput& input) const;

  /// Extends the tables that are kept between microbatches to cover `input`, so that forward() does not
  /// spend time on them.
  void prepare(const StageInput& input) const;
  /// Returns the stage's output. A stage with the LLM's head instead adds to `loss`, [1, 1], and returns an
  /// empty tensor.
  Tensor forward(Tensor in, const StageInput& input, Sums loss, StageTape& tape) const;
  /// Returns the logits of the LLM rows with these indices, [rows, the rank's part of the vocabulary]. The
  /// stage must hold the whole LLM. `encoded` holds the encoder's tokens. Keeps no activations.
  Tensor logits(const Tensor& encoded, const LlmInput& input, std::vector<std::int32_t> rows) const;
  /// Runs backward_input() and backward_weight() in one pass. If `completed` is set, calls completed(from)
  /// whenever more gradients are final: parameters().gradients() is then final from value `from` on.
  Tensor backward(Tensor d_out, StageTape& tape, const Completed& completed = {}) const;
  /// Takes the gradient of the output and returns the gradient of the input; the first stage returns an
  /// empty tensor. The tape then holds the data for backward_weight(). This call also adds to the gradients
  /// of norms and token embedding, because they are cheap. A microbatch's gradients are complete after
  /// backward_input() and backward_weight().
  Tensor backward_input(Tensor d_out, StageTape& tape) const;
  /// Adds to the gradients of the parameters that backward_input() leaves out, and frees the tape.
  void backward_weight(StageTape& tape) const;

 private:
  /// Runs a backward layer by layer: only its input part or, with `weights`, also each layer's weight part,
  /// so that each layer frees its memory at once.
  Tensor turn_back(Tensor d_out, bool weights, StageTape& tape, const Completed& completed) const;
  int last_llm_layer() const { return place_.first_llm_layer + place_.stage.llm_layers; }
  /// Runs the LLM's layers. Next to the activations, `x` and the result hold the deep features that are added
  /// to later layers, except that `x` comes without them from an embedding on the stage.
  Tensor run_llm(Tensor x, StageTape& tape) const;
  Tensor run_llm_back(Tensor d, bool weights, StageTape& tape, const Completed& completed) const;
  /// Returns a hook that calls visit(feature, tensor) for each LLM layer after which deep features are added;
  /// null if there are none.
  LayerHook at_deep(const std::function<void(int feature, Tensor& tensor)>& visit) const;
  Tensor encode(Tensor in, const EncoderInput& input, StageTape& tape) const;
  Tensor encode_backward(Tensor d_out, bool weights, StageTape& tape, const Completed& completed) const;
  std::function<void(int)> after_layers(bool encoder, const Completed& completed) const;
  std::int64_t complete_from(bool encoder, int layer) const;

  const ModelSpec& model_;
  StagePlace place_;
  const RankContext& rank_;
  ParameterStore store_;
  mutable SequencePacker llm_packer_;      // keeps tables between microbatches
  std::optional<ModelSpec> second_model_;  // ModelSpec::of_second(), on the stage with the connectors
  EncoderBranch encoder_;
  std::optional<EncoderBranch> second_;
  std::optional<TokenEmbedding> embedding_;
  TransformerStack llm_;
  std::optional<LmHead> head_;
};

}  // namespace dflop
