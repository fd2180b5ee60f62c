// Embeddings turn a stage's input into rows of its width: pixels of patches at the beginning of the encoder,
// and ids of text and the encoder's tokens at that of the LLM.
#pragma once

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"

namespace dflop {

/// A PatchTape keeps what a PatchEmbedding's backward needs of a microbatch.
struct PatchTape {
  Tensor pixels;
  Tensor d_patches;
};

/// A PatchEmbedding is a linear layer from the pixels of patches to rows of the encoder's width. It is not
/// split over tp: each rank makes the rows that it holds.
class PatchEmbedding {
 public:
  PatchEmbedding(ParameterStore& store, const RankContext& rank);

  /// Returns the rows that the rank holds.
  Tensor forward(const EncoderInput& input, PatchTape& tape) const;
  /// Keeps the gradient of its output for backward_weight(). Pixels have none.
  void backward_input(Tensor d_out, PatchTape& tape) const;
  void backward_weight(PatchTape& tape) const;

 private:
  const RankContext& rank_;
  Linear linear_;
};

/// A TokenTape keeps what a TokenEmbedding's backward needs of a microbatch.
struct TokenTape {
  IndexTensor text_ids;
  IndexTensor text_rows;
  IndexTensor encoded;
  IndexTensor encoded_rows;
  std::int64_t encoder_rows = 0;
  std::int64_t rows = 0;
};

/// A TokenEmbedding looks up the rows of text in the LLM's table, whose vocabulary is split over tp, and puts
/// the encoder's tokens between them.
class TokenEmbedding {
 public:
  TokenEmbedding(ParameterStore& store, const RankContext& rank);

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
};

}  // namespace dflop
