// These functions count the tokens of a sample that are trained.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/sample.hpp"

namespace dflop {

/// Returns the LLM tokens of a sample that do not come from the encoder; 0 if the encoder's tokens fill a
/// truncated sequence.
inline std::int64_t text_tokens(const Sample& sample) {
  return std::max<std::int64_t>(0, sample.llm_tokens - sample.encoder_output_tokens);
}

/// Returns the number of tokens of a sample that are trained: the answer's tokens. Samples do not say where
/// their answers begin, so by convention the first half of the text (rounded down, at least one token) is the
/// prompt and the rest is the answer. Tokens from the encoder are not predicted.
inline std::int64_t loss_tokens(const Sample& sample) {
  const std::int64_t text = text_tokens(sample);
  return text == 0 ? 0 : text - std::max<std::int64_t>(1, text / 2);
}

}  // namespace dflop
