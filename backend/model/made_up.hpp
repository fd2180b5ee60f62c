// MadeUpContents are synthetic training data: images of a few classes, and text whose answers depend on the
// class. A model can learn these answers. The data depend only on the seed and the sample, so every rank
// makes the data that it needs by itself.
#pragma once

#include <cstdint>
#include <vector>

#include "core/content/contents.hpp"
#include "core/kernel_choice/kernel_calls.hpp"
#include "core/model.hpp"

namespace dflop {

inline constexpr int kImageClasses = 8;

/// Returns the class of the sample's images, in [0, kImageClasses); 0 for samples without encoder sequences.
int image_class(std::uint64_t seed, const Sample& sample);

/// Returns the pixels of `patches` patches of one encoder sequence, float[patches, values], row by row. Each
/// patch is the class's row of a Walsh-Hadamard matrix (ones and minus ones) plus uniform noise in [-0.5,
/// 0.5). `sequence` is an index among the sample's encoder sequences, as in EncoderPiece.
std::vector<float> made_up_pixels(std::uint64_t seed, const Sample& sample, std::int64_t sequence,
                                  std::int64_t patches, int values);

/// Returns made_up_pixels() of one encoder sequence, with one patch of kPatchValues values for each of its
/// tokens.
/// @throws Error (internal) if the sample does not have the sequence.
std::vector<float> sequence_pixels(std::uint64_t seed, const Sample& sample, std::int64_t sequence);

/// Returns the ids of the sample's text_tokens(), in [0, vocabulary). The first ids are a random prompt. The
/// last loss_tokens() ids are the answer; each depends on the previous token and the class:
///
///   next = (5 * previous + 17 * class + 3) mod vocabulary.
///
/// `vocabulary` is from 1 to 2^31 - 1. The classes have different answers if none of the numbers 17 * 1 to
/// 17 * 7 is a multiple of `vocabulary`. Vocabularies of 128 and 512 satisfy this.
std::vector<std::int32_t> text_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary);

/// Returns, for each LLM position of the sample (encoder tokens, then text), the id of the next token if it
/// belongs to the answer, else kNoTarget. There are loss_tokens() targets.
std::vector<std::int32_t> target_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary);

/// MadeUpContents are the synthetic contents of one seed. An LLM sequence begins with the encoder tokens,
/// tile by tile; the text follows. Each encoder token is the mean of some of the connector's rows. In models
/// with an architecture, a row's position on every axis is its index, and attention windows are runs of
/// consecutive rows.
class MadeUpContents final : public Contents {
 public:
  /// Makes the encoder's inputs in the run's precision. The model must outlive this object.
  MadeUpContents(const ModelSpec& model, std::uint64_t seed, DType dtype = DType::f32)
      : model_(model), seed_(seed), dtype_(dtype) {
    if (model.second) second_ = model.of_second();
  }

  /// @throws Error (input) if the connector cannot merge the sequence's rows
  std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                 bool values) const override;
  std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const override;
  std::int64_t trained_tokens(const Sample& sample) const override;

 private:
  const ModelSpec& model_;
  std::optional<ModelSpec> second_;  ///< ModelSpec::of_second()
  std::uint64_t seed_;
  DType dtype_;
};

}  // namespace dflop
