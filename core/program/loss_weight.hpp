// LossWeights make the gradients of a scheduled batch equal those of the original batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"

namespace dflop {

/// Returns the LLM tokens of a sample that do not come from the encoder; 0 if the encoder's tokens fill a
/// truncated sequence.
std::int64_t text_tokens(const Sample& sample);

/// Returns how many tokens of a sample are trained, which are the answer's. Samples do not say where their
/// answers begin, so by convention the first half of the text (rounded down, at least one token) is the
/// prompt and the rest is the answer. Tokens from the encoder are not predicted.
std::int64_t loss_tokens(const Sample& sample);

struct LossWeights {
  double token = 0;         ///< factor of each token's loss: 1 / loss tokens of the global batch
  std::vector<double> bin;  ///< per bin, factor of the mean loss over its tokens: its share of all loss
                            ///< tokens
};

/// Returns weights with which losses, summed over all bins (microbatches and dp ranks alike), equal the mean
/// over all tokens of the global batch, whatever the assignment. With bin b of T_b tokens:
///
///    1/T * sum over tokens of l  =  sum over b of (T_b / T) * (1/T_b * sum over tokens in b of l).
///
/// Gradients are linear in the loss, so accumulated over microbatches and *summed* over dp ranks they equal
/// the gradients of the unscheduled batch. Separate means over each microbatch would not: they give a token
/// in a short bin more weight. (If gradients are averaged over dp ranks, multiply by dp.)
///
/// `tokens` has the loss tokens of each sample, in batch order. A bin without loss tokens has no mean and
/// weight 0; so does every bin of a batch without any.
/// @throws Error (input) unless the assignment has a bin for each of `tokens`, and none of them is negative.
LossWeights loss_weights(std::span<const std::int64_t> tokens, const Assignment& assignment);

}  // namespace dflop
