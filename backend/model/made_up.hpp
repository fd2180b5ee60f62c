// A sample's content can be made up from its shape: images of a few classes, and text whose answers depend on
// them, so that a model can learn to give them. Everything follows from the seed and the sample alone: any
// rank makes its part by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/model/content.hpp"
#include "core/kernel_choice/kernel_calls.hpp"
#include "core/model.hpp"

namespace dflop {

inline constexpr int kImageClasses = 8;

/// Returns a number in [0, kImageClasses): what the sample's images show; 0 without encoder sequences.
int image_class(std::uint64_t seed, const Sample& sample);

/// Returns the pixels of `patches` patches of one encoder sequence, float[patches, values], row by row. Each
/// patch is the class's row of a Walsh-Hadamard matrix, of ones and minus ones, plus noise uniform in [-0.5,
/// 0.5). `sequence` counts as in EncoderPiece.
std::vector<float> made_up_pixels(std::uint64_t seed, const Sample& sample, std::int64_t sequence,
                                  std::int64_t patches, int values);

/// Returns the same of each token of the sequence, kPatchValues each.
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

/// Returns per LLM position of the sample (encoder tokens, then text), the id of the next token where that is
/// a token of the answer, else kNoTarget. loss_tokens() of them are targets.
std::vector<std::int32_t> target_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary);

/// MadeUpContents are those of a seed. Encoder tokens come first in an LLM sequence, as means of the
/// connector's rows, tile by tile; then comes text. In models with an architecture a row's positions on all
/// axes are its place, and windows are runs of rows.
class MadeUpContents final : public Contents {
 public:
  /// Makes what the encoder sees in the precision of a run. The model outlives this.
  MadeUpContents(const ModelSpec& model, std::uint64_t seed, DType dtype = DType::f32)
      : model_(model), seed_(seed), dtype_(dtype) {}

  /// @throws Error (input) where the connector cannot merge the sequence's rows
  std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                 bool values) const override;
  std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const override;
  std::int64_t trained_tokens(const Sample& sample) const override;

 private:
  const ModelSpec& model_;
  std::uint64_t seed_;
  DType dtype_;
};

}  // namespace dflop
