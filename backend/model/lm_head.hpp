// The LLM ends here: its last norm, the head over the vocabulary, which is split over tp, and the loss.
#pragma once

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"

namespace dflop {

/// An LmHeadTape keeps what the head's backward needs of a microbatch.
struct LmHeadTape {
  NormTape norm;
  Tensor d_logits;
};

/// An LmHead computes logits of the vocabulary and their cross-entropy with the targets. Gradients of logits
/// take the place of the logits in the forward already.
class LmHead {
 public:
  LmHead(ParameterStore& store, const RankContext& rank);

  /// Adds token_weight times the loss of every trained row to `loss`, [1, 1].
  void forward(Tensor x, const LlmInput& input, double token_weight, Sums loss, LmHeadTape& tape) const;
  /// Returns the gradient of x and adds to that of the norm; leaves what backward_weight() reads.
  Tensor backward_input(LmHeadTape& tape) const;
  void backward_weight(LmHeadTape& tape) const;

 private:
  /// Returns, for each row, maximum, sum and target's logit over the whole vocabulary.
  SumTensor merged_parts(const Tensor& logits, Indices targets) const;

  const RankContext& rank_;
  std::int64_t first_class_;
  Norm norm_;
  Linear head_;
};

}  // namespace dflop
