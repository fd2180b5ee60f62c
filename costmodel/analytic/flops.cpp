#include "costmodel/analytic/flops.hpp"

namespace dflop {

Flop linear_flop(double parameters, double tokens) {
  return {2 * parameters * tokens};
}

Flop attention_flop(const TransformerSpec& spec, const Workload& work, int tp) {
  const double width = static_cast<double>(spec.heads_per_rank(tp) * spec.head_dim);
  const double pairs = static_cast<double>(work.attention_pairs) * (spec.causal ? 0.5 : 1.0);
  return {4 * width * pairs};
}

Flop layer_forward_flop(const TransformerSpec& spec, const Workload& work, int tp) {
  return linear_flop(static_cast<double>(spec.layer_parameters(tp)), static_cast<double>(work.tokens)) +
         attention_flop(spec, work, tp);
}

Flop layer_backward_flop(const TransformerSpec& spec, const Workload& work, int tp) {
  return layer_forward_flop(spec, work, tp) * 2;
}

Flop layer_recomputation_flop(const TransformerSpec& spec, const Workload& work, Recomputation recomputation,
                              int tp) {
  switch (recomputation) {
    case Recomputation::none:
      break;
    case Recomputation::selective:
      return attention_flop(spec, work, tp);
    case Recomputation::full:
      return layer_forward_flop(spec, work, tp);
  }
  return {};
}

double connector_tokens(const ConnectorSpec& spec, const Workload& encoder) {
  return static_cast<double>(encoder.tokens) / spec.merge;
}

Flop connector_flop(const ConnectorSpec& spec, const Workload& encoder, int tp) {
  return linear_flop(static_cast<double>(spec.parameters(tp)), connector_tokens(spec, encoder));
}

Flop head_flop(const TransformerSpec& spec, const Workload& work, int tp) {
  return linear_flop(static_cast<double>(spec.hidden * spec.vocabulary_per_rank(tp)),
                     static_cast<double>(work.tokens));
}

Flop encoder_flop(const ModelSpec& model, const Workload& encoder) {
  return layer_forward_flop(model.encoder, encoder) * model.encoder.layers +
         connector_flop(model.connector, encoder);
}

Flop llm_flop(const ModelSpec& model, const Workload& llm) {
  return layer_forward_flop(model.llm, llm) * model.llm.layers + head_flop(model.llm, llm);
}

Flop model_flop(const ModelSpec& model, const Workload& encoder, const Workload& llm) {
  return (encoder_flop(model, encoder) + llm_flop(model, llm)) * 3;
}

}  // namespace dflop
