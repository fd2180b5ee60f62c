// Both ends of the LLM, whose vocabulary is split over tp: the embedding that takes in text and the encoder's
// tokens, and the head with the loss.
#pragma once

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"

namespace dflop {

struct EmbeddingTape {
  IndexTensor text_ids;
  IndexTensor text_rows;
  IndexTensor encoded;
  IndexTensor encoded_rows;
  std::int64_t encoder_rows = 0;
  std::int64_t rows = 0;
};

class Embedding {
 public:
  Embedding(ParameterStore& store, const RankContext& rank);

  /// `encoded`: the encoder's tokens, [encoder_rows, width]. Gives the rows that the rank holds.
  Tensor forward(const Tensor& encoded, const LlmInput& input, EmbeddingTape& tape) const;
  /// The gradient of the encoder's tokens; adds to that of the table and frees the tape. It has one part
  /// alone: adding rows costs little, while keeping them for later would cost as much as a layer's input.
  Tensor backward(const Tensor& d_held, EmbeddingTape& tape) const;

 private:
  const RankContext& rank_;
  ParameterStore& store_;
  const Parameter& table_;
};

struct HeadTape {
  Tensor x;
  SumTensor statistics;
  Tensor normed;
  Tensor d_logits;
};

class Head {
 public:
  Head(ParameterStore& store, const RankContext& rank);

  /// Adds token_weight times the loss of every trained row to `loss`, [1, 1].
  void forward(Tensor x, const LlmInput& input, double token_weight, Sums loss, HeadTape& tape) const;
  /// Adds to the gradient of the norm; leaves what backward_weight() reads, `normed` and `d_logits`.
  Tensor backward_input(HeadTape& tape) const;
  void backward_weight(HeadTape& tape) const;

 private:
  SumTensor merged_parts(const Tensor& logits, Indices targets) const;

  const RankContext& rank_;
  std::int64_t first_class_;
  Norm norm_;
  Linear head_;
};

}  // namespace dflop
