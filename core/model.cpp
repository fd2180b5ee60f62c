#include "core/model.hpp"

namespace dflop {
namespace {

/// Returns the parameters of a norm: factors, and for a layer norm also summands.
std::int64_t norm_parameters(NormKind kind, std::int64_t width) {
  return (kind == NormKind::layer ? 2 : 1) * width;
}

}  // namespace

std::int64_t TransformerSpec::layer_vectors(int tp) const {
  if (!form) return 0;
  const std::int64_t queries = heads_per_rank(tp) * head_dim;
  const std::int64_t keys = kv_heads_per_rank(tp) * head_dim;
  std::int64_t sum = 2 * norm_parameters(form->norm, hidden);
  if (form->qkv_bias) sum += queries + (form->key_bias ? 2 : 1) * keys;
  if (form->output_bias) sum += hidden;
  if (form->mlp_bias) sum += (gated_mlp ? 2 : 1) * ffn_per_rank(tp) + hidden;
  if (form->qk_norm == QkNormKind::all_heads) sum += queries + keys;
  if (form->qk_norm == QkNormKind::each_head) sum += 2 * std::int64_t{head_dim};
  if (form->layer_scale) sum += 2 * std::int64_t{hidden};
  return sum;
}

std::int64_t ModelSpec::front_parameters() const {
  if (!architecture || encoder.layers == 0) return 0;
  const EncoderFront& of = architecture->front;
  const std::int64_t width = encoder.hidden;
  std::int64_t sum = (of.table + (of.class_row ? 1 : 0)) * width;
  if (of.norm) sum += norm_parameters(*of.norm, width);
  if (of.kind == FrontKind::patches) return sum + width * (of.values + (of.bias ? 1 : 0));
  constexpr std::int64_t kTaps = 3;  // of a convolution
  return sum + width * (kTaps * of.values + 1) + width * (kTaps * width + 1);
}

std::int64_t ModelSpec::connector_parameters(int tp) const {
  std::int64_t sum = connector.parameters(tp);
  if (!architecture) return sum;
  const ConnectorForm& of = architecture->connector;
  for (std::size_t i = 1; i < connector.widths.size(); ++i) {
    const bool is_split = i % 2 == 1 && i + 1 < connector.widths.size();  // by column, and its outputs so
    sum += is_split ? round_up(connector.widths[i], tp) / tp : connector.widths[i];
  }
  sum *= 1 + deep_features();
  if (!of.norm) return sum;
  const std::int64_t joined = norm_parameters(*of.norm, connector.widths.front());
  return sum + (of.selects ? joined : norm_parameters(*of.norm, encoder.hidden)) + deep_features() * joined;
}

std::int64_t ModelSpec::input_parameters(int tp) const {
  const bool newline = architecture && architecture->newline;
  return llm.embedding_parameters(tp) + (newline ? llm.hidden : 0);
}

std::int64_t ModelSpec::output_parameters(int tp, bool shares_embedding) const {
  const std::int64_t head = shares_embedding && llm.tied_embeddings ? 0 : llm.embedding_parameters(tp);
  return head + (llm.form ? norm_parameters(llm.form->norm, llm.hidden) : 0);
}

}  // namespace dflop
