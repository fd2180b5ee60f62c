#include "backend/model/microbatch.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "backend/model/parameter_list.hpp"
#include "core/error.hpp"
#include "core/program/loss_weight.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

template <typename Value>
void append(std::vector<Value>& values, const std::vector<Value>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

/// Spreads `rows` rows from `first` on over `outputs` means: as equal as whole rows allow, each of one at
/// least.
void add_means(EncoderInput& input, std::int64_t first, std::int64_t rows, std::int64_t outputs) {
  for (std::int64_t o = 0; o < outputs; ++o) {
    const std::int64_t begin = o * rows / outputs;
    const std::int64_t end = std::max(begin + 1, (o + 1) * rows / outputs);
    input.pool_begin.push_back(static_cast<std::int32_t>(first + begin));
    input.pool_end.push_back(static_cast<std::int32_t>(first + end));
  }
}

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

void PackedRows::add_sequence(std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<std::int32_t>(r));
  offsets.push_back(static_cast<std::int32_t>(positions.size()));
}

BatchContent::BatchContent(const Plan& plan, const ModelSpec& model, std::span<const Sample> samples,
                           const Assignment& assignment, std::uint64_t seed)
    : plan_(plan), model_(model), samples_(samples), bins_(samples_of_bins(plan, assignment)), seed_(seed) {
  require_live(model, samples);
  std::int64_t trained = 0;
  for (const Sample& sample : samples) trained += loss_tokens(sample);
  if (trained > 0) token_weight_ = 1.0 / static_cast<double>(trained);
}

EncoderInput BatchContent::encoder(int microbatch, int encoder_dp, bool pixels) const {
  EncoderInput input;
  input.rows_to.assign(static_cast<std::size_t>(plan_.llm.dp), 0);
  const std::int64_t merge = model_.connector.merge;
  for_each_piece(plan_, model_, samples_, bins_, microbatch, [&](const EncoderPiece& piece) {
    if (piece.encoder_dp != encoder_dp) return;
    const Sample& sample = samples_[static_cast<std::size_t>(piece.sample)];
    if (piece.tokens % merge != 0) {
      throw Error(ErrorKind::input, "sample '" + sample.id + "': " + std::to_string(piece.tokens) +
                                        " encoder tokens cannot be merged by " + std::to_string(merge));
    }
    const std::int64_t first = input.rows();
    input.add_sequence(piece.tokens);
    add_means(input, first / merge, piece.tokens / merge, piece.output_end - piece.output_begin);
    input.rows_to[static_cast<std::size_t>(piece.llm_dp)] += piece.output_end - piece.output_begin;
    if (!pixels) return;
    append(input.pixels, sequence_pixels(seed_, sample, piece.sequence));
  });
  return input;
}

LlmInput BatchContent::llm(int microbatch, int llm_dp) const {
  LlmInput input;
  input.rows_from.assign(static_cast<std::size_t>(plan_.encoder.dp), 0);
  for_each_piece(plan_, model_, samples_, bins_, microbatch, [&](const EncoderPiece& piece) {
    if (piece.llm_dp != llm_dp) return;
    input.rows_from[static_cast<std::size_t>(piece.encoder_dp)] += piece.output_end - piece.output_begin;
  });
  for (const std::int32_t i : bins_[static_cast<std::size_t>(microbatch) * plan_.llm.dp + llm_dp]) {
    const Sample& sample = samples_[static_cast<std::size_t>(i)];
    const std::int64_t first = input.rows();
    const std::int64_t encoded = std::min(sample.encoder_output_tokens, sample.llm_tokens);
    input.add_sequence(sample.llm_tokens);
    for (std::int64_t t = 0; t < encoded; ++t) {
      input.encoded.push_back(static_cast<std::int32_t>(input.encoder_rows + t));
      input.encoded_rows.push_back(static_cast<std::int32_t>(first + t));
    }
    input.encoder_rows += sample.encoder_output_tokens;
    append(input.text_ids, text_ids(seed_, sample, model_.llm.vocabulary));
    for (std::int64_t t = encoded; t < sample.llm_tokens; ++t) {
      input.text_rows.push_back(static_cast<std::int32_t>(first + t));
    }
    append(input.targets, target_ids(seed_, sample, model_.llm.vocabulary));
  }
  return input;
}

}  // namespace dflop
