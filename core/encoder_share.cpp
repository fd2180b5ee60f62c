#include "core/encoder_share.hpp"

#include <algorithm>

namespace dflop {
namespace {

/// Forward FLOP of one encoder sequence and layer, the weight by which sequences are shared over dp ranks.
double sequence_weight(const TransformerSpec& encoder, const EncoderSequences& sequence) {
  return 2.0 * static_cast<double>(encoder.layer_parameters(1)) * static_cast<double>(sequence.tokens) +
         4.0 * encoder.heads * encoder.head_dim * static_cast<double>(sequence.attention_pairs);
}

}  // namespace

SamplesOfBins samples_of_bins(const Plan& plan, const Assignment& assignment) {
  SamplesOfBins bins(plan.bins());
  for (std::size_t i = 0; i < assignment.bin.size(); ++i) {
    bins[assignment.bin[i]].push_back(static_cast<std::int32_t>(i));
  }
  return bins;
}

EncoderShare share_encoder(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
                           const SamplesOfBins& bins, int j) {
  const int encoder_dp = plan.encoder.dp;
  EncoderShare share;
  share.work.resize(encoder_dp);
  share.output_tokens.assign(static_cast<std::size_t>(encoder_dp) * plan.llm.dp, 0);
  double total = 0;
  for (int d = 0; d < plan.llm.dp; ++d) {
    for (const std::int32_t i : bins[j * plan.llm.dp + d]) {
      for (const EncoderSequences& group : batch[i].encoder_sequences) {
        total += sequence_weight(model.encoder, group) * static_cast<double>(group.count);
      }
    }
  }
  double done = 0;
  for (int d = 0; d < plan.llm.dp; ++d) {
    for (const std::int32_t i : bins[j * plan.llm.dp + d]) {
      const Sample& sample = batch[i];
      const std::int64_t sample_tokens = std::max<std::int64_t>(1, sample.encoder().tokens);
      std::int64_t tokens_before = 0;
      for (const EncoderSequences& group : sample.encoder_sequences) {
        const double weight = sequence_weight(model.encoder, group);
        for (std::int64_t q = 0; q < group.count; ++q) {
          const int rank = std::min(
              encoder_dp - 1, static_cast<int>((done + weight / 2) * encoder_dp / std::max(total, 1.0)));
          share.work[rank] += {1, group.tokens, group.attention_pairs};
          // Differences of one rising sequence of whole numbers, so that the parts add up to the whole.
          const std::int64_t tokens_after = tokens_before + group.tokens;
          share.output_tokens[static_cast<std::size_t>(rank) * plan.llm.dp + d] +=
              sample.encoder_output_tokens * tokens_after / sample_tokens -
              sample.encoder_output_tokens * tokens_before / sample_tokens;
          tokens_before = tokens_after;
          done += weight;
        }
      }
    }
  }
  return share;
}

}  // namespace dflop
