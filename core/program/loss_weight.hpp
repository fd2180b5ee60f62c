// LossWeights make the gradients of a scheduled batch those of the batch as it was drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"

namespace dflop {

/// Returns the LLM tokens of a sample that do not come out of the encoder; 0 where the encoder's fill the
/// whole of a cut sequence.
std::int64_t text_tokens(const Sample& sample);

/// Returns how many tokens of a sample have their prediction trained: those of the answer, which is the text
/// but for its first half (rounded down, at least one token), the prompt. Samples do not say where their
/// answers begin; so this is a convention. What comes out of the encoder is not predicted.
std::int64_t loss_tokens(const Sample& sample);

struct LossWeights {
  double token = 0;         ///< factor of each token's loss: 1 / loss tokens of the global batch
  std::vector<double> bin;  ///< per bin, factor of the mean loss over the bin's tokens: its share of them
};

/// Returns how losses are to be weighted so that, summed over all bins (microbatches and dp ranks alike),
/// they are the mean over all tokens of the global batch, whatever the assignment: with bin b of T_b tokens,
///
///   1/T * sum over tokens of l  =  sum over b of (T_b / T) * (1/T_b * sum over tokens in b of l).
///
/// Gradients are linear in the loss, so accumulated over microbatches and *summed* over dp ranks they equal
/// those of the unscheduled batch. A mean over each microbatch by itself would not: it gives a token in a
/// short bin more weight. (Where gradients are averaged over dp ranks, multiply by dp.)
///
/// `tokens` has the loss tokens of each sample, in batch order. A bin without any, whose mean does not exist,
/// weighs nothing; nor does anything in a batch without any.
/// @throws Error (input) unless the assignment has a bin for each of `tokens`, and none of them is negative.
LossWeights loss_weights(std::span<const std::int64_t> tokens, const Assignment& assignment);

}  // namespace dflop
