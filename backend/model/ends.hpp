// This header declares the layers around the transformer stacks: the Connector turns encoder rows into LLM
// tokens, the TokenEmbedding embeds text tokens, and the LmHead applies the last norm and computes logits
// and loss. The vocabulary is split over tp.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"
#include "backend/model/parameter_list.hpp"
#include "backend/model/row_mixer.hpp"
#include "core/model.hpp"

namespace dflop {

/// A ConnectorTape holds the tensors that the connector keeps for the backward of a microbatch. Between
/// backward_input() and backward_weight(), it holds gradients instead of outputs and no longer has the
/// connector's input and statistics.
struct ConnectorTape {
  NormTape norm;                  ///< of the rank's rows or, if rows are joined first, of the joined rows
  Tensor input;                   ///< if there is no norm: the rows that it would get
  std::vector<Tensor> inputs;     ///< input of each linear layer except the first
  std::vector<Tensor> outputs;    ///< output of each linear layer, before its activation
  RowMixer selected_back;         ///< maps gradients of selected rows to all rows
  RowMixer sent_back;             ///< maps gradients of sent rows to the connector's rows
  std::vector<Tensor> gradients;  ///< gradient of each linear layer's output
  std::int64_t rows = 0;          ///< number of input rows of all tp ranks together
  Tensor sent;                    ///< used by Connectors: rows that wait to be sent, or their gradient
};

/// A Connector turns the output of an encoder layer into rows for the LLM. Its linear layers are
/// split over tp in pairs; if their number is odd, every rank holds the whole last layer.
class Connector {
 public:
  /// Makes the connector of the encoder's last layer or, with `deep`, of the deep features with this index
  /// (Architecture::deepstack). Those are joined before their norm.
  Connector(const ModelSpec& model, const EncoderNames& names, ParameterStore& store, const RankContext& rank,
            std::optional<int> deep = {});

  /// Takes the rows of the encoder's output that the rank holds, [rows, encoder width]. Every tp rank
  /// returns all rows to send, [rows, LLM width].
  Tensor forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const;
  /// Returns the gradient of forward()'s x and adds to the gradients of the norm's parameters.
  /// backward_weight() adds to the gradients of all other parameters.
  Tensor backward_input(const Tensor& d_out, ConnectorTape& tape) const;
  void backward_weight(ConnectorTape& tape) const;

 private:
  /// Joined holds the input rows of all tp ranks. Each row of `matrix` consists of consecutive input rows
  /// that the connector joins, side by side.
  struct Joined {
    AllRows rows;
    ConstMatrix matrix;
  };

  Joined first_input(const ConnectorTape& tape) const;
  Tensor selected_and_joined(const Tensor& x, const EncoderInput& input, ConnectorTape& tape) const;
  Tensor held_of(ConstMatrix all) const;
  Tensor joined_first_backward(const Tensor& d_first, ConnectorTape& tape) const;
  Tensor normed_first_backward(const Tensor& d_first, ConnectorTape& tape) const;

  ConnectorForm form_;
  bool joins_first_;  ///< joins rows before the norm
  int joined_;
  const RankContext& rank_;
  std::optional<Norm> norm_;
  std::vector<Linear> linears_;
};

/// Connectors are the connector of the encoder's last layer, and those of deep features. Each row that they
/// send has one part for each of them (ModelSpec::sent_width()).
class Connectors {
 public:
  /// A Tape keeps one ConnectorTape for each connector, the main one first.
  using Tape = std::vector<ConnectorTape>;

  Connectors(const ModelSpec& model, const EncoderNames& names, ParameterStore& store,
             const RankContext& rank);

  /// Starts a microbatch. Call it before the encoder's first layer.
  void begin(Tape& tape) const;
  /// Takes the output of the encoder layer that deep feature `feature` comes from.
  void take(int feature, Tensor x, const EncoderInput& input, Tape& tape) const;
  /// Takes the output of the last layer and returns the rows to send. @see Connector::forward()
  Tensor forward(Tensor x, const EncoderInput& input, Tape& tape) const;
  /// Returns the gradient of forward()'s x.
  Tensor backward_input(const Tensor& d_out, Tape& tape) const;
  /// Returns the gradient of take()'s x, after backward_input().
  Tensor backward_deep(int feature, Tape& tape) const;
  void backward_weight(Tape& tape) const;

 private:
  const RankContext& rank_;
  std::vector<Connector> all_;
};

/// A TokenTape holds the data that a TokenEmbedding's backward needs for a microbatch.
struct TokenTape {
  IndexTensor text_ids;
  IndexTensor text_rows;
  IndexTensor encoded;
  IndexTensor encoded_rows;
  std::vector<std::int32_t> used;       ///< rows of `encoded` on the host, if there are deep features
  std::vector<std::int32_t> used_rows;  ///< LLM rows of `used`
  std::vector<Tensor> deep;             ///< deep features until they are added, for `used`
  std::vector<Tensor> d_deep;           ///< their gradients, until the backward of the embedding
  IndexTensor newline_rows;
  std::int64_t encoder_rows = 0;
  std::int64_t rows = 0;
};

/// A TokenEmbedding looks up text tokens in the LLM's embedding table and inserts the encoder's rows and
/// learned newlines between them. The table's vocabulary is split over tp.
class TokenEmbedding {
 public:
  TokenEmbedding(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Returns the LLM's input rows that this rank holds. `encoded` holds the encoder's tokens, [encoder_rows,
  /// ModelSpec::sent_width()].
  Tensor forward(const Tensor& encoded, const LlmInput& input, TokenTape& tape) const;
  /// Adds deep features to the output of LLM layer `layer`, if that layer has some.
  void add_deep(int layer, Tensor& x, TokenTape& tape) const;
  /// Keeps the gradient of these features, from the gradient of the layer's output.
  void keep_deep_gradient(int layer, const Tensor& d, TokenTape& tape) const;
  /// Returns the gradient of the encoder's tokens, adds to the table's gradient and frees the tape. This
  /// backward is not split into input and weight parts: the weight part only adds rows, which is cheap, but
  /// keeping the rows for later would take as much memory as a layer's input.
  Tensor backward(const Tensor& d_held, TokenTape& tape) const;

 private:
  const RankContext& rank_;
  ParameterStore& store_;
  const Parameter& table_;
  const Parameter* newline_;
  int deep_;  ///< number of deep features
};

/// An LmHeadTape holds the data that an LmHead's backward needs for a microbatch.
struct LmHeadTape {
  NormTape norm;
  Tensor d_logits;
  Tensor d_normed;  ///< replaces d_logits if the loss was computed in chunks
};

/// An LmHead computes logits over the vocabulary and their cross-entropy with the targets. The forward
/// replaces the logits by their gradients. With TransformerSpec::logits_at_once, the forward computes the
/// logits of trained rows only, chunk by chunk, and also runs the head's backward except for its norm. This
/// takes three matrix products; recomputing logits in the backward would take a fourth.
class LmHead {
 public:
  LmHead(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Adds token_weight times the loss of every trained row to `loss`, [1, 1]. `turns_back` says that a
  /// backward follows. If the loss is computed in chunks and `turns_back` is true, also adds to the gradient
  /// of the head's matrix.
  void forward(Tensor x, const LlmInput& input, double token_weight, Sums loss, LmHeadTape& tape,
               bool turns_back = true) const;
  /// Returns the logits of the rows of x whose indices are in `rows`. All tp ranks together hold `all` rows
  /// of x.
  Tensor logits(const Tensor& x, std::int64_t all, std::vector<std::int32_t> rows) const;
  /// Returns the gradient of forward()'s x and adds to the norm's gradients. The tape keeps the data that
  /// backward_weight() reads.
  Tensor backward_input(LmHeadTape& tape) const;
  void backward_weight(LmHeadTape& tape) const;

 private:
  /// Returns each row's max, sum and target logit over the whole vocabulary.
  SumTensor merged_parts(const Tensor& logits, Indices targets) const;
  /// Adds the loss of the rows to `loss` and returns the gradients of their logits.
  Tensor d_logits(ConstMatrix normed, Indices targets, double token_weight, Sums loss) const;
  template <typename F>
  void for_each_chunk(std::span<const std::int32_t> targets, const F& f) const;
  /// Adds the loss of the rows to `loss`, chunk by chunk, without gradients.
  void add_loss_in_chunks(ConstMatrix normed, std::span<const std::int32_t> targets, double token_weight,
                          Sums loss) const;
  /// Adds the loss of the rows to `loss` and adds to the gradient of the head's matrix. Returns the gradient
  /// of the rows that the rank holds.
  Tensor turn_in_chunks(ConstMatrix normed, std::span<const std::int32_t> targets, double token_weight,
                        Sums loss) const;

  const RankContext& rank_;
  const TransformerSpec& spec_;
  std::int64_t first_class_;
  Norm norm_;
  Linear head_;
};

}  // namespace dflop
