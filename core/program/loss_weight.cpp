#include "core/program/loss_weight.hpp"

#include <algorithm>

#include "core/refuse.hpp"

namespace dflop {

std::int64_t text_tokens(const Sample& sample) {
  return std::max<std::int64_t>(0, sample.llm_tokens - sample.encoder_output_tokens);
}

std::int64_t loss_tokens(const Sample& sample) {
  const std::int64_t text = text_tokens(sample);
  return text == 0 ? 0 : text - std::max<std::int64_t>(1, text / 2);
}

LossWeights loss_weights(std::span<const std::int64_t> tokens, const Assignment& assignment) {
  if (assignment.bin.size() != tokens.size()) {
    refuse_input("loss weights", "expected a bin for each of {} samples, found {}", tokens.size(),
                 assignment.bin.size());
  }
  const std::size_t bins = static_cast<std::size_t>(assignment.microbatches) * assignment.dp;
  std::vector<std::int64_t> of_bin(bins, 0);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto b = static_cast<std::size_t>(assignment.bin[i]);
    if (b >= bins) {
      refuse_input("loss weights", "sample {}: expected a bin from 0 to {}, found {}", i, bins - 1,
                   assignment.bin[i]);
    }
    if (tokens[i] < 0) {
      refuse_input("loss weights", "sample {}: expected at least 0 tokens, found {}", i, tokens[i]);
    }
    of_bin[b] += tokens[i];
    total += tokens[i];
  }
  LossWeights weights{0, std::vector<double>(bins, 0)};
  if (total == 0) return weights;
  weights.token = 1.0 / static_cast<double>(total);
  for (std::size_t b = 0; b < bins; ++b) {
    weights.bin[b] = static_cast<double>(of_bin[b]) / static_cast<double>(total);
  }
  return weights;
}

}  // namespace dflop
