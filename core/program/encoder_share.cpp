#include "core/program/encoder_share.hpp"

namespace dflop {

SamplesOfBins samples_of_bins(const Plan& plan, const Assignment& assignment) {
  SamplesOfBins bins(plan.bins());
  for (std::size_t i = 0; i < assignment.bin.size(); ++i) {
    bins[assignment.bin[i]].push_back(static_cast<std::int32_t>(i));
  }
  return bins;
}

double sequence_weight(const TransformerSpec& encoder, const EncoderSequences& sequence) {
  return 2.0 * static_cast<double>(encoder.layer_parameters(1)) * static_cast<double>(sequence.tokens) +
         4.0 * encoder.heads * encoder.head_dim * static_cast<double>(sequence.attention_pairs);
}

double microbatch_weight(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
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

EncoderShare share_encoder(const Plan& plan, const ModelSpec& model, std::span<const Sample> batch,
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
