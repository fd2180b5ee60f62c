#include "backend/model/microbatch.hpp"

#include <algorithm>
#include <string>

#include "backend/model/live_checks.hpp"
#include "backend/model/synthetic.hpp"
#include "core/error.hpp"
#include "core/program/loss_weight.hpp"

namespace dflop {
namespace {

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

}  // namespace

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
    const std::vector<float> values = sequence_pixels(seed_, sample, piece.sequence);
    input.pixels.insert(input.pixels.end(), values.begin(), values.end());
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
  for (const std::int32_t i : bins_[static_cast<std::size_t>(microbatch * plan_.llm.dp + llm_dp)]) {
    const Sample& sample = samples_[static_cast<std::size_t>(i)];
    const std::int64_t first = input.rows();
    const std::int64_t encoded = std::min(sample.encoder_output_tokens, sample.llm_tokens);
    input.add_sequence(sample.llm_tokens);
    for (std::int64_t t = 0; t < encoded; ++t) {
      input.encoded.push_back(static_cast<std::int32_t>(input.encoder_rows + t));
      input.encoded_rows.push_back(static_cast<std::int32_t>(first + t));
    }
    input.encoder_rows += sample.encoder_output_tokens;
    const std::vector<std::int32_t> ids = text_ids(seed_, sample, model_.llm.vocabulary);
    input.text_ids.insert(input.text_ids.end(), ids.begin(), ids.end());
    for (std::int64_t t = encoded; t < sample.llm_tokens; ++t) {
      input.text_rows.push_back(static_cast<std::int32_t>(first + t));
    }
    const std::vector<std::int32_t> targets = target_ids(seed_, sample, model_.llm.vocabulary);
    input.targets.insert(input.targets.end(), targets.begin(), targets.end());
  }
  return input;
}

}  // namespace dflop
