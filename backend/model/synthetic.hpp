// A sample's content is made up from its shape: images of a few classes, and text whose answers depend on
// them, so that a model can learn to give them. Everything follows from the seed and the sample alone: any
// rank makes its part by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "core/sample.hpp"

namespace dflop {

inline constexpr int kImageClasses = 8;
inline constexpr int kPatchValues = 48;  ///< of one encoder token, as 4x4 pixels of three colours

/// Returns a number in [0, kImageClasses): what the sample's images show; 0 without encoder sequences.
int image_class(std::uint64_t seed, const Sample& sample);

/// Returns the pixels of one encoder sequence, float[tokens, kPatchValues], row by row. Each patch is the
/// class's row of a Walsh-Hadamard matrix, of ones and minus ones, plus noise uniform in [-0.5, 0.5).
/// `sequence` counts as in EncoderPiece.
/// @throws Error (internal) where the sample has no such sequence.
std::vector<float> sequence_pixels(std::uint64_t seed, const Sample& sample, std::int64_t sequence);

/// Returns ids in [0, vocabulary) of the sample's text_tokens(). The first are the prompt, drawn at random;
/// the last loss_tokens() are the answer, each a function of the token before it and of the class:
///
///   next = (5 * previous + 17 * class + 3) mod vocabulary.
///
/// `vocabulary` is from 1 to 2^31 - 1. Classes are told apart where no multiple of 17 by 1 to 7 is one of the
/// vocabulary, as for 128 and 512.
std::vector<std::int32_t> text_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary);

/// This is the target of a position whose prediction is not trained.
inline constexpr std::int32_t kNoTarget = -1;

/// Returns per LLM position of the sample (encoder tokens, then text), the id of the next token where that is
/// a token of the answer, else kNoTarget. loss_tokens() of them are targets.
std::vector<std::int32_t> target_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary);

}  // namespace dflop
