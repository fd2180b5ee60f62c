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
Flop linear_flop(double parameters, double tokens);

/// Returns the FLOP of the attention core, forward, on one of `tp` ranks: QK^T and PV, each 2 * heads *
/// head_dim per attention pair; half of the pairs when causal (Dao 2023).
Flop attention_flop(const TransformerSpec& spec, const Workload& work, int tp = 1);

/// Returns the FLOP of one layer's forward pass on one of `tp` ranks, padded heads included.
Flop layer_forward_flop(const TransformerSpec& spec, const Workload& work, int tp = 1);

/// Returns the FLOP of one layer's backward pass: twice the forward, for inputs and weights (or for both
/// operands of QK^T and PV). What flash attention computes again inside its kernel is a matter of time and
/// not counted (PaLM, appendix B).
Flop layer_backward_flop(const TransformerSpec& spec, const Workload& work, int tp = 1);

/// Returns what recomputation adds to one layer's backward pass: nothing, the attention core (Korthikanti et
/// al. 2022), or the whole forward.
Flop layer_recomputation_flop(const TransformerSpec& spec, const Workload& work, Recomputation recomputation,
                              int tp = 1);

/// Returns the connector tokens that come out of an encoder workload: tokens / merge.
double connector_tokens(const ConnectorSpec& spec, const Workload& encoder);

/// Returns the FLOP of the connector, forward, on one of `tp` ranks.
Flop connector_flop(const ConnectorSpec& spec, const Workload& encoder, int tp = 1);

/// Returns the FLOP of the vocabulary head, forward, on one of `tp` ranks: 2 * hidden * vocabulary per token.
/// The embedding is a lookup, no FLOP.
Flop head_flop(const TransformerSpec& spec, const Workload& work, int tp = 1);

/// Returns the forward FLOP of all encoder layers and the connector; the unpadded model.
Flop encoder_flop(const ModelSpec& model, const Workload& encoder);

/// Returns the forward FLOP of all LLM layers and the vocabulary head; the unpadded model.
Flop llm_flop(const ModelSpec& model, const Workload& llm);

/// Returns the forward and backward FLOP of the unpadded model without recomputation: the numerator of MFU
/// (PaLM, appendix B).
Flop model_flop(const ModelSpec& model, const Workload& encoder, const Workload& llm);

}  // namespace dflop
