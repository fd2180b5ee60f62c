#include "backend/model/synthetic.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "core/error.hpp"
#include "core/program/loss_weight.hpp"
#include "core/support/hash.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

/// Returns random numbers for one part of a sample. The zero byte keeps "a" + "b" from being "ab".
Random random_of(std::uint64_t seed, const Sample& sample, const std::string& part) {
  return Random(seed, stable_hash(sample.id + '\0' + part));
}

std::int64_t sequence_tokens(const Sample& sample, std::int64_t sequence) {
  std::int64_t left = sequence;
  for (const EncoderSequences& group : sample.encoder_sequences) {
    if (left >= 0 && left < group.count) return group.tokens;
    left -= group.count;
  }
  throw Error(ErrorKind::internal, "sample '" + sample.id + "': expected an encoder sequence from 0 to " +
                                       std::to_string(sample.encoder().sequences - 1) + ", found " +
                                       std::to_string(sequence));
}

/// Returns row class + 1 of the Walsh-Hadamard matrix of order 16, three times: rows are orthogonal, and none
/// is constant.
float pattern(int image_class, int value) {
  const auto both = static_cast<unsigned>(image_class + 1) & static_cast<unsigned>(value % 16);
  return std::popcount(both) % 2 == 0 ? 1.0F : -1.0F;
}

}  // namespace

int image_class(std::uint64_t seed, const Sample& sample) {
  if (sample.encoder_sequences.empty()) return 0;
  return static_cast<int>(random_of(seed, sample, "class").below(kImageClasses));
}

std::vector<float> sequence_pixels(std::uint64_t seed, const Sample& sample, std::int64_t sequence) {
  const std::int64_t tokens = sequence_tokens(sample, sequence);
  const int shown = image_class(seed, sample);
  Random random = random_of(seed, sample, "pixels " + std::to_string(sequence));
  std::vector<float> pixels;
  pixels.reserve(static_cast<std::size_t>(tokens * kPatchValues));
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (int value = 0; value < kPatchValues; ++value) {
      const auto noise = static_cast<float>(random.uniform() - 0.5);
      pixels.push_back(pattern(shown, value) + noise);
    }
  }
  return pixels;
}

std::vector<std::int32_t> text_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary) {
  const std::int64_t answer = loss_tokens(sample);
  const std::int64_t prompt = text_tokens(sample) - answer;
  const std::int64_t shown = image_class(seed, sample);
  Random random = random_of(seed, sample, "text");
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(prompt + answer));
  for (std::int64_t k = 0; k < prompt; ++k) {
    ids.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
  }
  for (std::int64_t k = 0; k < answer; ++k) {
    ids.push_back(static_cast<std::int32_t>((5 * std::int64_t{ids.back()} + 17 * shown + 3) % vocabulary));
  }
  return ids;
}

std::vector<std::int32_t> target_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary) {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(sample.llm_tokens), kNoTarget);
  const std::vector<std::int32_t> ids = text_ids(seed, sample, vocabulary);
  // The text is the end of the sequence, and the answer the end of the text: the last position has no target.
  const std::int64_t answer = loss_tokens(sample);
  std::copy(ids.end() - answer, ids.end(), targets.end() - (answer > 0 ? answer + 1 : 0));
  return targets;
}

}  // namespace dflop
