// This file has the connector with what makes tokens of the LLM of its rows; the embedding of tokens; and the
// LLM's last norm with the head over the vocabulary, which is split over tp, and the loss.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"
#include "backend/model/row_mix.hpp"
#include "core/model.hpp"

namespace dflop {

/// A ConnectorTape has what the connector keeps of a microbatch; between the parts of a backward gradients in
/// the place of outputs, and neither its input nor statistics.
struct ConnectorTape {
  NormTape norm;                  ///< of the rows that the rank holds; of selected rows, joined
  Tensor input;                   ///< the same rows where there is no norm
  std::vector<Tensor> inputs;     ///< of each linear layer after the first
  std::vector<Tensor> outputs;    ///< of each before its activation
  RowMixer selected_back;         ///< takes gradients of selected rows to all rows
  RowMixer sent_back;             ///< takes gradients of what is sent to the connector's rows
  std::vector<Tensor> gradients;  ///< of each linear layer's output
  std::int64_t rows = 0;          ///< that come in, on all tp ranks together
};

/// A Connector ends the encoder and makes what is sent to the LLM. Its linear layers are split over tp by
/// twos; a last one without a second is on every rank.
class Connector {
 public:
  Connector(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Takes the rows of [rows, encoder width] that the rank holds and returns what is sent, [rows, LLM width],
  /// which all tp ranks have.
  Tensor forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const;
  /// Returns the gradient of x and adds to those of the norm's parameters; backward_weight() to all others.
  Tensor backward_input(const Tensor& d_out, ConnectorTape& tape) const;
  void backward_weight(ConnectorTape& tape) const;

 private:
  /// Joined has the rows of all tp ranks, those that are joined side by side in each row of the matrix.
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

/// A TokenTape keeps what a TokenEmbedding's backward needs of a microbatch.
struct TokenTape {
  IndexTensor text_ids;
  IndexTensor text_rows;
  IndexTensor encoded;
  IndexTensor encoded_rows;
  IndexTensor newline_rows;
  std::int64_t encoder_rows = 0;
  std::int64_t rows = 0;
};

/// A TokenEmbedding looks up the rows of text in the LLM's table, whose vocabulary is split over tp, and puts
/// the encoder's rows and learned newlines between them.
class TokenEmbedding {
 public:
  TokenEmbedding(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Returns the rows that the rank holds. `encoded` has the encoder's tokens, [encoder_rows, width].
  Tensor forward(const Tensor& encoded, const LlmInput& input, TokenTape& tape) const;
  /// Returns the gradient of the encoder's tokens, adds to that of the table and frees the tape. It has one
  /// part alone: adding rows costs little, while keeping them for later would cost as much as a layer's
  /// input.
  Tensor backward(const Tensor& d_held, TokenTape& tape) const;

 private:
  const RankContext& rank_;
  ParameterStore& store_;
  const Parameter& table_;
  const Parameter* newline_;
};

/// An LmHeadTape keeps what the head's backward needs of a microbatch.
struct LmHeadTape {
  NormTape norm;
  Tensor d_logits;
  Tensor d_normed;  ///< where the loss took rows in chunks, instead of gradients of logits
};

/// An LmHead computes logits of the vocabulary and their cross-entropy with the targets. Gradients of logits
/// take the place of the logits in the forward already. A model with TransformerSpec::logits_at_once has
/// logits of trained rows alone, chunk by chunk, and all of the head but its norm turns back in the forward:
/// that costs no product more, where logits that were made again for the backward would cost a fourth.
class LmHead {
 public:
  LmHead(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Adds token_weight times the loss of every trained row to `loss`, [1, 1]; in chunks also to the gradient
  /// of the head's matrix, unless no backward follows: `turns_back`.
  void forward(Tensor x, const LlmInput& input, double token_weight, Sums loss, LmHeadTape& tape,
               bool turns_back = true) const;
  /// Returns the logits of these rows of x, of which all tp ranks together have `all`.
  Tensor logits(const Tensor& x, std::int64_t all, std::vector<std::int32_t> rows) const;
  /// Returns the gradient of x and adds to that of the norm; leaves what backward_weight() reads.
  Tensor backward_input(LmHeadTape& tape) const;
  void backward_weight(LmHeadTape& tape) const;

 private:
  /// Returns, for each row, maximum, sum and target's logit over the whole vocabulary.
  SumTensor merged_parts(const Tensor& logits, Indices targets) const;
  /// Adds the loss of rows, and returns the gradients of their logits.
  Tensor d_logits(ConstMatrix normed, Indices targets, double token_weight, Sums loss) const;
  template <typename F>
  void for_each_chunk(std::span<const std::int32_t> targets, const F& f) const;
  /// Adds the loss of rows, chunk by chunk.
  void add_loss_in_chunks(ConstMatrix normed, std::span<const std::int32_t> targets, double token_weight,
                          Sums loss) const;
  /// Adds the same and the gradient of the head's matrix, and returns the gradient of those rows that the
  /// rank holds.
  Tensor turn_in_chunks(ConstMatrix normed, std::span<const std::int32_t> targets, double token_weight,
                        Sums loss) const;

  const RankContext& rank_;
  const TransformerSpec& spec_;
  std::int64_t first_class_;
  Norm norm_;
  Linear head_;
};

}  // namespace dflop
