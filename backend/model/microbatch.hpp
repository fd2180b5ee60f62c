// The stages of a plan get their part of one global batch: pixels, tokens, and which row belongs where.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/program/encoder_share.hpp"
#include "core/sample.hpp"

namespace dflop {

/// PackedRows are sequences whose rows lie one after the other, without padding.
struct PackedRows {
  std::vector<std::int32_t> offsets{0};  ///< of each sequence's first row, and of the end
  std::vector<std::int32_t> positions;   ///< of each row in its sequence

  std::int64_t rows() const { return static_cast<std::int64_t>(positions.size()); }
  void add_sequence(std::int64_t rows);
};

/// An EncoderInput is what one dp rank of the encoder encodes of one microbatch.
struct EncoderInput : PackedRows {
  std::vector<float> pixels;             ///< [rows, kPatchValues], where they are asked for
  std::vector<std::int32_t> pool_begin;  ///< per LLM token, the connector's rows whose mean it is
  std::vector<std::int32_t> pool_end;
  std::vector<std::int64_t> rows_to;  ///< LLM tokens for each dp rank of the LLM, which follow each other
};

/// An LlmInput is what one dp rank of the LLM has in one microbatch: each sample is one sequence, tokens from
/// the encoder first, then text.
struct LlmInput : PackedRows {
  std::vector<std::int32_t> text_ids;
  std::vector<std::int32_t> text_rows;     ///< where each text token stands
  std::vector<std::int32_t> encoded;       ///< tokens from the encoder that are used: not those cut off
  std::vector<std::int32_t> encoded_rows;  ///< where each of them stands
  std::vector<std::int32_t> targets;       ///< per row, the next token; -1 where it is not trained
  std::int64_t encoder_rows = 0;           ///< tokens from the encoder, used or not
  std::vector<std::int64_t> rows_from;  ///< of these, from each dp rank of the encoder, one after the other
};

/// A BatchContent has one global batch under one assignment. What is given to it outlives it.
class BatchContent {
 public:
  /// Places the samples.
  /// @throws Error (input) as require_live().
  BatchContent(const Plan& plan, const ModelSpec& model, std::span<const Sample> samples,
               const Assignment& assignment, std::uint64_t seed);

  /// These return what a dp rank has in a microbatch; `pixels` says whether the encoder's are asked for.
  EncoderInput encoder(int microbatch, int encoder_dp, bool pixels) const;
  LlmInput llm(int microbatch, int llm_dp) const;

  /// Returns what a token's loss is multiplied with: one over the trained tokens of the whole batch; 0
  /// without any.
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
