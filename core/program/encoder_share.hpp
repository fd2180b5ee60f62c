// This header shares the encoder sequences of a microbatch over the encoder's dp ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"

namespace dflop {

/// SamplesOfBins has the sample indices of each bin, in batch order.
using SamplesOfBins = std::vector<std::vector<std::int32_t>>;

inline SamplesOfBins samples_of_bins(const Plan& plan, const Assignment& assignment) {
  SamplesOfBins bins(plan.bins());
  for (std::size_t i = 0; i < assignment.bin.size(); ++i) {
    bins[assignment.bin[i]].push_back(static_cast<std::int32_t>(i));
  }
  return bins;
}

/// An EncoderPiece is one encoder sequence of a microbatch: where it is encoded, and what becomes of it.
struct EncoderPiece {
  std::int32_t sample = 0;  ///< index in the batch
  std::int32_t llm_dp = 0;  ///< dp rank of the LLM that has the sample
  /// This dp rank encodes it: one of the encoder in a disaggregated plan, elsewhere llm_dp.
  std::int32_t encoder_dp = 0;
  std::int64_t sequence = 0;  ///< index in the sample's sequences, each of a group's `count` counted
  std::int64_t tokens = 0;    ///< of the sequence
  std::int64_t attention_pairs = 0;
  /// The sample's LLM tokens [begin, end) come out of the sequence. Pieces of a sample follow each other from
  /// 0 to its encoder_output_tokens; one may have none.
  std::int64_t output_begin = 0;
  std::int64_t output_end = 0;

  bool operator==(const EncoderPiece&) const = default;
};

/// Returns the forward FLOP of one encoder sequence and layer, the weight by which sequences are shared over
/// dp ranks.
inline double sequence_weight(const TransformerSpec& encoder, const EncoderSequences& sequence) {
  return 2.0 * static_cast<double>(encoder.layer_parameters(1)) * static_cast<double>(sequence.tokens) +
         4.0 * encoder.heads * encoder.head_dim * static_cast<double>(sequence.attention_pairs);
}

/// Returns the sum of the weights of all sequences of microbatch `j`.
inline double microbatch_weight(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                                const SamplesOfBins& bins, int j) {
  double total = 0;
  for (int d = 0; d < plan.llm.dp; ++d) {
    for (const std::int32_t i : bins[j * plan.llm.dp + d]) {
      for (const EncoderSequences& group : batch[i].encoder_sequences) {
        total += sequence_weight(model.encoder, group) * static_cast<double>(group.count);
      }
    }
  }
  return total;
}

/// Calls `visit` with each sequence of a sample, in order. `rank_of(weight)` is asked once for each, and
/// gives the dp rank that encodes it.
template <typename RankOf, typename Visit>
void for_each_piece_of_sample(const ModelSpec& model, const Sample& sample, EncoderPiece piece,
                              RankOf&& rank_of, Visit&& visit) {
  const std::int64_t sample_tokens = std::max<std::int64_t>(1, sample.encoder().tokens);
  std::int64_t tokens_after = 0;
  for (const EncoderSequences& group : sample.encoder_sequences) {
    const double weight = sequence_weight(model.encoder, group);
    piece.tokens = group.tokens;
    piece.attention_pairs = group.attention_pairs;
    for (std::int64_t q = 0; q < group.count; ++q) {
      piece.encoder_dp = rank_of(weight);
      // These are differences of one rising sequence of whole numbers, so that the parts add up to the whole.
      tokens_after += group.tokens;
      piece.output_end = sample.encoder_output_tokens * tokens_after / sample_tokens;
      visit(static_cast<const EncoderPiece&>(piece));
      piece.output_begin = piece.output_end;
      ++piece.sequence;
    }
  }
}

/// Walks all sequences of microbatch `j`: by dp rank of the LLM, samples in batch order, their sequences in
/// order. Calls `visit(const EncoderPiece&)` with each. In a disaggregated plan each goes to the rank into
/// whose equal part of the total weight its middle falls; elsewhere a sample's sequences stay where it is.
template <typename Visit>
void for_each_piece(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                    const SamplesOfBins& bins, int j, Visit&& visit) {
  const bool shared = has_encoder_ranks(plan.layout);
  const int encoder_dp = plan.encoder.dp;
  const double total = shared ? microbatch_weight(plan, model, batch, bins, j) : 0;
  double done = 0;
  for (std::int32_t d = 0; d < plan.llm.dp; ++d) {
    const auto rank_of = [&](double weight) {
      if (!shared) return d;
      const double middle = done + weight / 2;
      done += weight;
      return std::min(encoder_dp - 1, static_cast<std::int32_t>(middle * encoder_dp / std::max(total, 1.0)));
    };
    for (const std::int32_t i : bins[j * plan.llm.dp + d]) {
      EncoderPiece first;
      first.sample = i;
      first.llm_dp = d;
      for_each_piece_of_sample(model, batch[i], first, rank_of, visit);
    }
  }
}

/// An EncoderShare says how the encoder sequences of one microbatch are shared over the encoder's dp ranks:
/// the sums of its pieces.
struct EncoderShare {
  std::vector<Workload> work;               // per encoder dp rank
  std::vector<std::int64_t> output_tokens;  // [encoder dp rank * llm dp + llm dp rank]
};

inline EncoderShare share_encoder(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                                  const SamplesOfBins& bins, int j) {
  EncoderShare share;
  share.work.resize(plan.encoder.dp);
  share.output_tokens.assign(static_cast<std::size_t>(plan.encoder.dp) * plan.llm.dp, 0);
  for_each_piece(plan, model, batch, bins, j, [&](const EncoderPiece& piece) {
    share.work[piece.encoder_dp] += {1, piece.tokens, piece.attention_pairs};
    share.output_tokens[static_cast<std::size_t>(piece.encoder_dp) * plan.llm.dp + piece.llm_dp] +=
        piece.output_end - piece.output_begin;
  });
  return share;
}

}  // namespace dflop
