// Rows of the encoder are made of patches of pictures or frames of sounds here. Nothing is split over tp:
// each rank makes the rows that it holds, with the whole weights.
#pragma once

#include <memory>

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"
#include "core/model.hpp"

namespace dflop {

/// An InputTape keeps what the backward of an InputEmbedding needs of a microbatch.
struct InputTape {
  Tensor values;           ///< as the first linear layer gets them
  Tensor d_rows;           ///< the gradient of the result
  IndexTensor table_rows;  ///< per held row, that of the table of positions
  IndexTensor value_rows;  ///< held rows that are patches, where some are not
  IndexTensor class_rows;  ///< held rows that are class rows
  // These are of sounds.
  Tensor first;             ///< what the first convolution gives, before GELU
  Tensor joined;            ///< what the second gets
  Tensor second;            ///< what it gives
  IndexTensor joined_rows;  ///< the thirds of `joined` that are rows of `first`
  IndexTensor first_rows;   ///< and which
};

/// An InputEmbedding begins an encoder.
class InputEmbedding {
 public:
  virtual ~InputEmbedding() = default;
  /// Returns the rows that the rank holds.
  virtual Tensor forward(const EncoderInput& input, InputTape& tape) const = 0;
  /// Adds to the gradients of all parameters, from the tape's d_rows, and frees the tape. What the encoder
  /// sees has no gradient.
  virtual void backward_weight(InputTape& tape) const = 0;
};

/// Makes the begin of a model's encoder. What is referred to outlives it.
std::unique_ptr<InputEmbedding> make_input_embedding(const ModelSpec& model, ParameterStore& store,
                                                     const RankContext& rank);

}  // namespace dflop
