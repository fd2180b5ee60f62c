// The beginning of the encoder: pixels of patches to rows of its width. Not split over tp: each rank makes
// the rows that it holds.
#pragma once

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"

namespace dflop {

struct PatchTape {
  Tensor pixels;
  Tensor d_patches;
};

class PatchEmbedding {
 public:
  PatchEmbedding(ParameterStore& store, const RankContext& rank);

  /// The rows that the rank holds.
  Tensor forward(const EncoderInput& input, PatchTape& tape) const;
  /// The gradient of its output, for backward_weight(). Pixels have none.
  void backward_input(Tensor d_out, PatchTape& tape) const;
  void backward_weight(PatchTape& tape) const;

 private:
  const RankContext& rank_;
  Linear linear_;
};

}  // namespace dflop
