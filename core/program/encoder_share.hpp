// These functions distribute the encoder sequences of a microbatch over the encoder's dp ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"
#include "core/work_counts.hpp"

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

/// An EncoderPiece is one encoder sequence of a microbatch, the dp rank that encodes it, and the LLM tokens
/// it becomes.
struct EncoderPiece {
  std::int32_t sample = 0;  ///< index in the batch
  std::int32_t llm_dp = 0;  ///< dp rank of the LLM that has the sample
  /// This dp rank encodes it: one of the encoder's in a disaggregated plan. In other plans it is the copy of
  /// the encoder that encodes it, llm_dp * encoder_copies() + copy, whichever pipeline rank has the copy.
  std::int32_t encoder_dp = 0;
  std::int64_t sequence = 0;  ///< index in the sample's sequences; EncoderSequences are `count` of them
  std::int64_t tokens = 0;    ///< of the sequence
  std::int64_t attention_pairs = 0;
  /// The sample's LLM tokens [begin, end) come from this sequence. The pieces of a sample cover 0 to its
  /// encoder_output_tokens without gaps; a piece may have no tokens.
  std::int64_t output_begin = 0;
  std::int64_t output_end = 0;
  bool second = false;  ///< whether the second encoder encodes it

  bool operator==(const EncoderPiece&) const = default;
};

/// Returns the weight of an encoder sequence when sequences are distributed over dp ranks: the forward FLOP
/// of one encoder layer or, in a model with two encoders, of all layers of its encoder.
inline double sequence_weight(const ModelSpec& model, const EncoderSequences& sequence) {
  const TransformerSpec& encoder = sequence.second && model.second ? model.second->encoder : model.encoder;
  const double layer =
      2.0 * static_cast<double>(encoder.layer_parameters(1)) * static_cast<double>(sequence.tokens) +
      4.0 * encoder.heads * encoder.head_dim * static_cast<double>(sequence.attention_pairs);
  return model.second ? encoder.layers * layer : layer;
}

/// OutputShares divide a sample's LLM tokens among the encoder sequences that they come from.
class OutputShares {
 public:
  OutputShares(const ModelSpec& model, const Sample& sample) : model_(model) {
    const auto sum = [&] {
      std::int64_t shares = 0;
      for (const EncoderSequences& group : sample.encoder_sequences) shares += group.count * of(group);
      return shares;
    };
    all_ = sum();
    if (all_ > 0) return;
    least_ = 1;  // no sequence is long enough for a merged token, but the LLM tokens come from somewhere
    all_ = std::max<std::int64_t>(1, sum());
  }

  /// Returns a number proportional to the LLM tokens that come from a sequence: its tokens or, in a model
  /// with two encoders, these tokens after merging.
  std::int64_t of(const EncoderSequences& sequence) const {
    if (!model_.second) return sequence.tokens;
    const ConnectorSpec& connector = sequence.second ? model_.second->connector : model_.connector;
    return std::max(least_, sequence.tokens / std::max(1, connector.merge));
  }
  /// Returns the sum over all sequences, at least 1.
  std::int64_t all() const { return all_; }

 private:
  const ModelSpec& model_;
  std::int64_t least_ = 0;
  std::int64_t all_ = 0;
};

/// Returns the sum of sequence_weight() over all encoder sequences of these samples.
inline double encoder_weight(const ModelSpec& model, std::span<const Sample> batch,
                             const std::vector<std::int32_t>& samples) {
  double total = 0;
  for (const std::int32_t i : samples) {
    for (const EncoderSequences& group : batch[i].encoder_sequences)
      total += sequence_weight(model, group) * static_cast<double>(group.count);
  }
  return total;
}

/// Calls `visit` with each sequence of a sample, in order. `rank_of(weight)` is called once for each and
/// returns the dp rank that encodes it.
template <typename RankOf, typename Visit>
void for_each_piece_of_sample(const ModelSpec& model, const Sample& sample, EncoderPiece piece,
                              RankOf&& rank_of, Visit&& visit) {
  const OutputShares shares(model, sample);
  std::int64_t shares_after = 0;
  for (const EncoderSequences& group : sample.encoder_sequences) {
    const double weight = sequence_weight(model, group);
    piece.second = group.second;
    piece.tokens = group.tokens;
    piece.attention_pairs = group.attention_pairs;
    for (std::int64_t q = 0; q < group.count; ++q) {
      piece.encoder_dp = rank_of(weight);
      // Take differences of one increasing sequence of integers, so that the parts add up to the whole.
      shares_after += shares.of(group);
      piece.output_end = sample.encoder_output_tokens * shares_after / shares.all();
      visit(static_cast<const EncoderPiece&>(piece));
      piece.output_begin = piece.output_end;
      ++piece.sequence;
    }
  }
}

/// Visits all sequences of microbatch `j` with `visit(const EncoderPiece&)`: by LLM dp rank, then sample in
/// batch order, then sequence in order. If the encoder has separate ranks, the microbatch's total weight is
/// divided into equal parts, one per encoder dp rank, and a sequence goes to the rank whose part contains the
/// sequence's midpoint. In other plans a sample's sequences stay on its LLM dp rank, whose copies of the
/// encoder divide the dp rank's weight in the same way. With ShareRule::count each sample has weight 1, and
/// its sequences stay together.
template <typename Visit>
void for_each_piece(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                    const SamplesOfBins& bins, int j, Visit&& visit) {
  const bool apart = has_encoder_ranks(plan.layout);
  const int parts = apart ? plan.encoder.dp : encoder_copies(plan);
  const bool by_count = plan.share_rule == ShareRule::count;
  const auto bin_of = [&](std::int32_t d) -> const auto& {
    return bins[j * plan.llm.dp + d];
  };
  const auto weight_of = [&](std::int32_t d) {
    return by_count ? static_cast<double>(bin_of(d).size()) : encoder_weight(model, batch, bin_of(d));
  };
  double total = 0;  // of the samples that the parts share
  for (std::int32_t d = 0; apart && d < plan.llm.dp; ++d) total += weight_of(d);
  double done = 0;
  for (std::int32_t d = 0; d < plan.llm.dp; ++d) {
    const std::int32_t first_part = apart ? 0 : d * parts;
    if (!apart && parts > 1) {
      total = weight_of(d);
      done = 0;
    }
    const auto part_with = [&](double middle) {
      return first_part +
             std::min(parts - 1, static_cast<std::int32_t>(middle * parts / std::max(total, 1.0)));
    };
    const auto rank_of = [&](double weight) {
      if (parts == 1) return first_part;
      if (by_count) return part_with(done + 0.5);
      const double middle = done + weight / 2;
      done += weight;
      return part_with(middle);
    };
    for (const std::int32_t i : bin_of(d)) {
      EncoderPiece first;
      first.sample = i;
      first.llm_dp = d;
      for_each_piece_of_sample(model, batch[i], first, rank_of, visit);
      if (by_count) done += 1;
    }
  }
}

/// An EncoderShare has the work and output tokens of one microbatch, summed for each
/// EncoderPiece::encoder_dp.
struct EncoderShare {
  std::vector<Workload> work;               // per encoder_dp
  std::vector<std::int64_t> output_tokens;  // [encoder_dp * llm dp + llm dp rank]
};

inline EncoderShare share_encoder(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                                  const SamplesOfBins& bins, int j) {
  EncoderShare share;
  share.work.resize(plan.encoder.dp);
  share.output_tokens.assign(static_cast<std::size_t>(plan.encoder.dp) * plan.llm.dp, 0);
  for_each_piece(plan, model, batch, bins, j, [&](const EncoderPiece& piece) {
    share.work[piece.encoder_dp] +=
        EncoderSequences{1, piece.tokens, piece.attention_pairs, piece.second}.work();
    share.output_tokens[static_cast<std::size_t>(piece.encoder_dp) * plan.llm.dp + piece.llm_dp] +=
        piece.output_end - piece.output_begin;
  });
  return share;
}

/// Returns, for each LLM dp rank, the largest of each count of work in microbatch `j` over its copies of the
/// encoder. No copy takes longer or needs more memory than for this work.
/// @pre the encoder has no separate ranks
inline std::vector<Workload> largest_shares(const Plan& plan, const ModelSpec& model,
                                            std::span<const Sample> batch, const SamplesOfBins& bins, int j) {
  const int copies = encoder_copies(plan);
  const std::vector<Workload> shares = share_encoder(plan, model, batch, bins, j).work;
  std::vector<Workload> largest(plan.llm.dp);
  for (int e = 0; e < encoder_parts(plan); ++e) largest[e / copies] = most(largest[e / copies], shares[e]);
  return largest;
}

}  // namespace dflop
