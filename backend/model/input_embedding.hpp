// An InputEmbedding turns picture patches or sound frames into the encoder's rows. Its weights are not split
// over tp: each rank has the whole weights and makes only the rows that it holds.
#pragma once

#include <memory>
#include <string>

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"
#include "core/model.hpp"

namespace dflop {

/// An InputTape holds the data that an InputEmbedding's backward needs for a microbatch.
struct InputTape {
  Tensor values;           ///< input of the first linear layer
  Tensor d_rows;           ///< gradient of the embedding's output rows
  IndexTensor table_rows;  ///< per held row, its row in the position table
  RowMix table_mix;        ///< per held row, its mixture of table rows, if the table is spread
  IndexTensor value_rows;  ///< held rows that are patches; empty if all are
  IndexTensor class_rows;  ///< held rows that are class rows
  NormTape norm;           ///< of the rows, if the front has a norm
  // The following members are used for sounds.
  Tensor first;             ///< output of the first convolution, before GELU
  Tensor joined;            ///< input of the second convolution
  Tensor second;            ///< output of the second convolution
  IndexTensor joined_rows;  ///< the thirds of rows of `joined` that hold rows of `first`
  IndexTensor first_rows;   ///< for each third in `joined_rows`, its row of `first`
};

/// An InputEmbedding is the first layer of an encoder.
class InputEmbedding {
 public:
  virtual ~InputEmbedding() = default;
  /// Returns the encoder's input rows that this rank holds.
  virtual Tensor forward(const EncoderInput& input, InputTape& tape) const = 0;
  /// Computes the gradients of all parameters from the tape's d_rows, adds them to the gradient sums, and
  /// frees the tape. The encoder's input has no gradient.
  virtual void backward_weight(InputTape& tape) const = 0;
};

/// Makes the input embedding of a model's encoder, whose parameters have names that begin with `encoder`. The
/// referenced objects must outlive it.
std::unique_ptr<InputEmbedding> make_input_embedding(const ModelSpec& model, const std::string& encoder,
                                                     ParameterStore& store, const RankContext& rank);

}  // namespace dflop
