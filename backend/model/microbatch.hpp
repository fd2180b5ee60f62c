// The stages of a plan get their part of one global batch: pixels, tokens, and which row belongs where.
//
// A sample's content is made up from its shape: images of a few classes, and text whose answers depend on
// them, so that a model can learn to give them. Everything follows from the seed and the sample alone: any
// rank makes its part by itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kernel_choice/kernel_calls.hpp"
#include "core/plan.hpp"
#include "core/program/encoder_share.hpp"
#include "core/sample.hpp"

namespace dflop {

inline constexpr int kImageClasses = 8;

/// Returns a number in [0, kImageClasses): what the sample's images show; 0 without encoder sequences.
int image_class(std::uint64_t seed, const Sample& sample);

/// Returns the pixels of one encoder sequence, float[tokens, kPatchValues], row by row. Each patch is the
/// class's row of a Walsh-Hadamard matrix, of ones and minus ones, plus noise uniform in [-0.5, 0.5).
/// `sequence` counts as in EncoderPiece.
/// @throws Error (internal) where the sample has no such sequence.
std::vector<float> sequence_pixels(std::uint64_t seed, const Sample& sample, std::int64_t sequence);

/// Returns ids in [0, vocabulary) of the sample's text_tokens(). The first are the prompt, drawn at random;
/// the last loss_tokens() are the answer, each a function of the token before it and of the class:
///
///   next = (5 * previous + 17 * class + 3) mod vocabulary.
///
/// `vocabulary` is from 1 to 2^31 - 1. Classes are told apart where no multiple of 17 by 1 to 7 is one of the
/// vocabulary, as for 128 and 512.
std::vector<std::int32_t> text_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary);

/// This is the target of a position whose prediction is not trained.
inline constexpr std::int32_t kNoTarget = -1;

/// Returns per LLM position of the sample (encoder tokens, then text), the id of the next token where that is
/// a token of the answer, else kNoTarget. loss_tokens() of them are targets.
std::vector<std::int32_t> target_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary);

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
