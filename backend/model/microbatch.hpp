// What the stages of a plan get of one global batch: pixels, tokens, and which row belongs where.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/program/encoder_share.hpp"
#include "core/sample.hpp"

namespace dflop {

/// What one dp rank of the encoder encodes of one microbatch.
struct EncoderInput {
  std::vector<std::int32_t> offsets{0};  ///< of the packed sequences
  std::vector<std::int32_t> positions;   ///< of each row in its sequence
  std::vector<float> pixels;             ///< [rows, kPatchValues], where they are asked for
  std::vector<std::int32_t> pool_begin;  ///< per LLM token, the connector's rows whose mean it is
  std::vector<std::int32_t> pool_end;
  std::vector<std::int64_t> rows_to;  ///< LLM tokens for each dp rank of the LLM, which follow each other
};

/// What one dp rank of the LLM has in one microbatch: each sample is one sequence, tokens from the encoder
/// first, then text.
struct LlmInput {
  std::vector<std::int32_t> offsets{0};
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> text_ids;
  std::vector<std::int32_t> text_rows;     ///< where each text token stands
  std::vector<std::int32_t> encoded;       ///< tokens from the encoder that are used: not those cut off
  std::vector<std::int32_t> encoded_rows;  ///< where each of them stands
  std::vector<std::int32_t> targets;       ///< per row, the next token; -1 where it is not trained
  std::int64_t encoder_rows = 0;           ///< tokens from the encoder, used or not
  std::vector<std::int64_t> rows_from;  ///< of these, from each dp rank of the encoder, one after the other
};

/// One global batch under one assignment. What is given to it outlives it.
class BatchContent {
 public:
  /// @throws Error (input) as require_live().
  BatchContent(const Plan& plan, const ModelSpec& model, std::span<const Sample> samples,
               const Assignment& assignment, std::uint64_t seed);

  EncoderInput encoder(int microbatch, int encoder_dp, bool pixels) const;
  LlmInput llm(int microbatch, int llm_dp) const;

  /// What a token's loss is multiplied with: one over the trained tokens of the whole batch; 0 without any.
  double token_weight() const { return token_weight_; }

 private:
  const Plan& plan_;
  const ModelSpec& model_;
  std::span<const Sample> samples_;
  SamplesOfBins bins_;
  std::uint64_t seed_;
  double token_weight_ = 0;
};

}  // namespace dflop
