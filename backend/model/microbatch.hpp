// The stages of a plan get their part of one global batch: what the encoder sees, tokens, and which row
// belongs where.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/model/content.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/program/encoder_share.hpp"
#include "core/sample.hpp"

namespace dflop {

/// An EncoderInput is what one dp rank of the encoder encodes of one microbatch: its EncoderSequences, one
/// after the other.
struct EncoderInput : PackedRows {
  std::vector<HostValues> values;  ///< of each sequence's patches or frames, where they are asked for
  std::vector<std::int32_t> value_offsets{0};  ///< of each sequence's first patch or frame, and of the end
  std::vector<std::int32_t> value_rows;
  std::vector<std::int32_t> table_rows;
  RowMix select;                      ///< of the encoder's rows
  RowMix sent;                        ///< of the connector's rows
  std::vector<std::int64_t> rows_to;  ///< rows for each dp rank of the LLM, which follow each other
};

/// An LlmInput is what one dp rank of the LLM has in one microbatch: each sample is one sequence.
struct LlmInput : PackedRows {
  std::vector<std::int32_t> text_ids;
  std::vector<std::int32_t> text_rows;     ///< where each text token stands
  std::vector<std::int32_t> newline_rows;  ///< where learned newlines stand
  std::vector<std::int32_t> encoded;       ///< rows from the encoder that are used: not those cut off
  std::vector<std::int32_t> encoded_rows;  ///< where each of them stands; what has one place is added there
  std::vector<std::int32_t> targets;       ///< per row, the next token; -1 where it is not trained
  std::int64_t encoder_rows = 0;           ///< rows from the encoder, used or not
  std::vector<std::int64_t> rows_from;  ///< of these, from each dp rank of the encoder, one after the other
};

/// A BatchContent has one global batch under one assignment. What is given to it outlives it.
class BatchContent {
 public:
  /// Places the samples.
  /// @throws Error (input) as require_live().
  BatchContent(const Plan& plan, const ModelSpec& model, std::span<const Sample> samples,
               const Assignment& assignment, const Contents& contents);

  /// These return what a dp rank has in a microbatch; `values` says whether what the encoder sees is asked
  /// for.
  EncoderInput encoder(int microbatch, int encoder_dp, bool values) const;
  LlmInput llm(int microbatch, int llm_dp) const;

  /// Returns what a token's loss is multiplied with: one over the trained tokens of the whole batch; 0
  /// without any.
  double token_weight() const { return token_weight_; }

 private:
  const Plan& plan_;
  const ModelSpec& model_;
  std::span<const Sample> samples_;
  SamplesOfBins bins_;
  const Contents& contents_;
  double token_weight_ = 0;
};

}  // namespace dflop
