// A BatchContent gives each stage of a plan its input for one global batch: the encoder's inputs, the LLM's
// tokens, and the destination of every row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/model/packed_rows.hpp"
#include "backend/model/parameter_list.hpp"
#include "core/content/contents.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/program/encoder_share.hpp"
#include "core/sample.hpp"

namespace dflop {

/// An EncoderInput is the input of one dp rank of the encoder for one microbatch: its EncoderSequences, back
/// to back. A model with two encoders has one for each; the second one's is part of the first one's.
struct EncoderInput : PackedRows {
  std::vector<HostValues> values;              ///< values of each sequence's patches or frames, if requested
  std::vector<std::int32_t> value_offsets{0};  ///< first patch or frame of each sequence, then the end
  std::vector<std::int32_t> value_rows;
  std::vector<std::int32_t> table_rows;
  RowMix table_mix;                   ///< per row, its mixture of the position table's rows
  RowMix select;                      ///< makes the selected rows from the encoder's rows
  RowMix sent;                        ///< makes the sent rows from the connector's rows
  std::vector<std::int64_t> rows_to;  ///< number of rows for each dp rank of the LLM, in rank order
  /// If copies of the encoder share the microbatch (encoder_copies()), the number of rows that each sends.
  std::vector<std::int64_t> rows_of_copies = {};
  std::shared_ptr<EncoderInput> second = nullptr;  ///< if the model has a second encoder
  /// If the model has a second encoder, these are the places of this encoder's sent rows among the rows of
  /// both.
  std::vector<std::int32_t> sent_places = {};

  /// Returns the number of rows that all encoders send.
  std::int64_t sent_rows() const { return sent.rows() + (second ? second->sent.rows() : 0); }
};

/// An LlmInput is the input of one dp rank of the LLM for one microbatch. Each sample is one sequence.
struct LlmInput : PackedRows {
  std::vector<std::int32_t> text_ids;
  std::vector<std::int32_t> text_rows;     ///< row of each text token
  std::vector<std::int32_t> newline_rows;  ///< rows of learned newlines
  std::vector<std::int32_t> encoded;       ///< rows from the encoder that are used; cut-off rows are not
  std::vector<std::int32_t> encoded_rows;  ///< LLM row of each of `encoded`; equal rows add up
  std::vector<std::int32_t> targets;       ///< per row, the next token; -1 if the loss does not cover it
  std::int64_t encoder_rows = 0;           ///< rows from the encoder, used or not
  std::vector<std::int64_t> rows_from;     ///< number of `encoder_rows` from each dp rank of the encoder
};

/// A BatchContent holds one global batch under one assignment. Its constructor's arguments must outlive it.
class BatchContent {
 public:
  /// Assigns the samples to microbatches and dp ranks, as `assignment` says.
  /// @throws what require_live() throws
  BatchContent(const Plan& plan, const ModelSpec& model, std::span<const Sample> samples,
               const Assignment& assignment, const Contents& contents);

  /// encoder() and llm() return the input of a dp rank for a microbatch; `encoder_dp` is an
  /// EncoderPiece::encoder_dp. `values` says which encoders' input values to include.
  EncoderInput encoder(int microbatch, int encoder_dp, TakenValues values) const;
  LlmInput llm(int microbatch, int llm_dp) const;

  /// Returns the weight of each trained token's loss: one over the number of trained tokens in the whole
  /// batch; 0 if there are none.
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
