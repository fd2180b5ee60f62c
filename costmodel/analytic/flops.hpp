// These functions count the FLOP of layers and models. A multiply and an add count as two.
//
// Sources: Narayanan et al. 2021 (Megatron-LM, appendix) and Korthikanti et al. 2022 (appendix A) for the
// layers; Chowdhery et al. 2022 (PaLM, appendix B) for which of them count towards MFU; Dao 2023
// (FlashAttention-2, section 4.1) for causal halving.
#pragma once

#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/units.hpp"

namespace dflop {

/// Returns 2 FLOP per weight and token (Narayanan et al. 2021).
inline Flop linear_flop(double parameters, double tokens) {
  return {2 * parameters * tokens};
}

/// Returns the FLOP of the attention core, forward, on one of `tp` ranks: QK^T and PV, each 2 * heads *
/// head_dim per attention pair; half of the pairs when causal (Dao 2023).
inline Flop attention_flop(const TransformerSpec& spec, const Workload& work, int tp = 1) {
  const double width = static_cast<double>(spec.heads_per_rank(tp) * spec.head_dim);
  const double pairs = static_cast<double>(work.attention_pairs) * (spec.causal ? 0.5 : 1.0);
  return {4 * width * pairs};
}

/// Returns the FLOP of one layer's forward pass on one of `tp` ranks, padded heads included.
inline Flop layer_forward_flop(const TransformerSpec& spec, const Workload& work, int tp = 1) {
  return linear_flop(static_cast<double>(spec.layer_parameters(tp)), static_cast<double>(work.tokens)) +
         attention_flop(spec, work, tp);
}

/// Returns the connector tokens that come out of an encoder workload: tokens / merge.
inline double connector_tokens(const ConnectorSpec& spec, const Workload& encoder) {
  return static_cast<double>(encoder.tokens) / spec.merge;
}

/// Returns the FLOP of the connector, forward, on one of `tp` ranks.
inline Flop connector_flop(const ConnectorSpec& spec, const Workload& encoder, int tp = 1) {
  return linear_flop(static_cast<double>(spec.parameters(tp)), connector_tokens(spec, encoder));
}

/// Returns the FLOP of the vocabulary head, forward, on one of `tp` ranks: 2 * hidden * vocabulary per token.
/// The embedding is a lookup, no FLOP.
inline Flop head_flop(const TransformerSpec& spec, const Workload& work, int tp = 1) {
  return linear_flop(static_cast<double>(spec.hidden * spec.vocabulary_per_rank(tp)),
                     static_cast<double>(work.tokens));
}

/// Returns the forward FLOP of all encoder layers and the connector; the unpadded model.
inline Flop encoder_flop(const ModelSpec& model, const Workload& encoder) {
  return layer_forward_flop(model.encoder, encoder) * model.encoder.layers +
         connector_flop(model.connector, encoder);
}

/// Returns the forward FLOP of all LLM layers and the vocabulary head; the unpadded model.
inline Flop llm_flop(const ModelSpec& model, const Workload& llm) {
  return layer_forward_flop(model.llm, llm) * model.llm.layers + head_flop(model.llm, llm);
}

/// Returns the forward and backward FLOP of the unpadded model without recomputation: the numerator of MFU
/// (PaLM, appendix B).
inline Flop model_flop(const ModelSpec& model, const Workload& encoder, const Workload& llm) {
  return (encoder_flop(model, encoder) + llm_flop(model, llm)) * 3;
}

}  // namespace dflop
