// This header declares the layers around the transformer stacks. The Connector turns encoder rows into LLM
// tokens. The TokenEmbedding embeds text tokens. The LmHead applies the last norm, and computes the logits
// over the vocabulary (split over tp) and the loss.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"
#include "backend/model/row_mixer.hpp"
#include "core/model.hpp"

namespace dflop {

/// A ConnectorTape holds the tensors that the connector keeps for the backward of a microbatch. Between
/// backward_input() and backward_weight(), it holds gradients instead of outputs and no longer has the
/// connector's input and statistics.
struct ConnectorTape {
  NormTape norm;                  ///< norm of the held rows or, with selection, of the joined selected rows
  Tensor input;                   ///< if there is no norm: the rows that `norm` would hold
  std::vector<Tensor> inputs;     ///< input of each linear layer except the first
  std::vector<Tensor> outputs;    ///< output of each linear layer, before its activation
  RowMixer selected_back;         ///< maps gradients of selected rows to all rows
  RowMixer sent_back;             ///< maps gradients of sent rows to the connector's rows
  std::vector<Tensor> gradients;  ///< of each linear layer's output
  std::int64_t rows = 0;          ///< rows of the input, on all tp ranks together
};

/// A Connector ends the encoder and makes the rows that are sent to the LLM. Its linear layers are split over
/// tp in pairs; if their number is odd, every rank holds the whole last layer.
class Connector {
 public:
  Connector(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Takes those rows of [rows, encoder width] that the rank holds. Returns the rows to send, [rows, LLM
  /// width], on all tp ranks.
  Tensor forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const;
  /// Returns the gradient of x, and adds to the gradients of the norm's parameters; backward_weight() adds to
  /// all other parameters' gradients.
  Tensor backward_input(const Tensor& d_out, ConnectorTape& tape) const;
  void backward_weight(ConnectorTape& tape) const;

 private:
  /// Joined holds the rows of all tp ranks. A row of `matrix` consists of the rows that the connector joins
  /// into one, side by side.
  struct Joined {
    AllRows rows;
    ConstMatrix matrix;
  };

  Joined first_input(const ConnectorTape& tape) const;
  Tensor selected(const Tensor& x, const EncoderInput& input, ConnectorTape& tape) const;
  Tensor held_of(ConstMatrix all) const;
  Tensor selected_backward(const Tensor& d_first, ConnectorTape& tape) const;
  Tensor joined_backward(const Tensor& d_first, ConnectorTape& tape) const;

  ConnectorForm form_;
  int joined_;
  const RankContext& rank_;
  std::optional<Norm> norm_;
  std::vector<Linear> linears_;
};

/// A TokenTape holds the data that a TokenEmbedding's backward needs for a microbatch.
struct TokenTape {
  IndexTensor text_ids;
  IndexTensor text_rows;
  IndexTensor encoded;
  IndexTensor encoded_rows;
  IndexTensor newline_rows;
  std::int64_t encoder_rows = 0;
  std::int64_t rows = 0;
};

/// A TokenEmbedding looks up text tokens in the LLM's table, whose vocabulary is split over tp, and inserts
/// the encoder's rows and learned newlines between them.
class TokenEmbedding {
 public:
  TokenEmbedding(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Returns the rows that the rank holds. `encoded` holds the encoder's tokens, [encoder_rows, width].
  Tensor forward(const Tensor& encoded, const LlmInput& input, TokenTape& tape) const;
  /// Returns the gradient of the encoder's tokens, adds to the table's gradient and frees the tape. This
  /// backward is not split into an input part and a weight part: adding rows is cheap, while keeping them for
  /// later would take as much memory as a layer's input.
  Tensor backward(const Tensor& d_held, TokenTape& tape) const;

 private:
  const RankContext& rank_;
  ParameterStore& store_;
  const Parameter& table_;
  const Parameter* newline_;
};

/// An LmHeadTape holds the data that the head's backward needs for a microbatch.
struct LmHeadTape {
  NormTape norm;
  Tensor d_logits;
  Tensor d_normed;  ///< replaces d_logits if the loss was computed in chunks
};

/// An LmHead computes logits over the vocabulary and their cross-entropy with the targets. The forward
/// already replaces logits by their gradients. With TransformerSpec::logits_at_once, it computes the logits
/// of trained rows only, chunk by chunk, and the forward also runs the head's backward except for its norm.
/// This needs no more than the usual three products; recomputing logits in the backward would add a fourth.
class LmHead {
 public:
  LmHead(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Adds token_weight times the loss of every trained row to `loss`, [1, 1]. If it works in chunks and a
  /// backward follows (`turns_back`), it also adds to the gradient of the head's matrix.
  void forward(Tensor x, const LlmInput& input, double token_weight, Sums loss, LmHeadTape& tape,
               bool turns_back = true) const;
  /// Returns the logits of the given rows of x. All tp ranks together hold `all` rows of x.
  Tensor logits(const Tensor& x, std::int64_t all, std::vector<std::int32_t> rows) const;
  /// Returns the gradient of x, adds to the norm's gradient and keeps the data that backward_weight() reads.
  Tensor backward_input(LmHeadTape& tape) const;
  void backward_weight(LmHeadTape& tape) const;

 private:
  /// Returns each row's max, sum and target logit over the whole vocabulary.
  SumTensor merged_parts(const Tensor& logits, Indices targets) const;
  /// Adds the loss of the rows to `loss`, and returns the gradients of their logits.
  Tensor d_logits(ConstMatrix normed, Indices targets, double token_weight, Sums loss) const;
  template <typename F>
  void for_each_chunk(std::span<const std::int32_t> targets, const F& f) const;
  /// Adds the loss of the rows to `loss`, chunk by chunk.
  void add_loss_in_chunks(ConstMatrix normed, std::span<const std::int32_t> targets, double token_weight,
                          Sums loss) const;
  /// Chunk by chunk, adds the loss of the rows to `loss` and adds to the gradient of the head's matrix.
  /// Returns the gradient of the rows that the rank holds.
  Tensor turn_in_chunks(ConstMatrix normed, std::span<const std::int32_t> targets, double token_weight,
                        Sums loss) const;

  const RankContext& rank_;
  const TransformerSpec& spec_;
  std::int64_t first_class_;
  Norm norm_;
  Linear head_;
};

}  // namespace dflop
