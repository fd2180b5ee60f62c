#include "core/model.hpp"

#include <algorithm>

namespace dflop {
namespace {

/// Returns the parameters of a norm: factors, and for a layer norm also summands.
std::int64_t norm_parameters(NormKind kind, std::int64_t width) {
  return (kind == NormKind::layer ? 2 : 1) * width;
}

/// Returns the parameters of the front of an encoder of this width.
std::int64_t parameters_of(const EncoderFront& of, std::int64_t width) {
  std::int64_t sum = (of.table + (of.class_row ? 1 : 0)) * width;
  if (of.norm) sum += norm_parameters(*of.norm, width);
  if (of.kind == FrontKind::patches) return sum + width * (of.values + (of.bias ? 1 : 0));
  constexpr std::int64_t kTaps = 3;  // of a convolution
  return sum + width * (kTaps * of.values + 1) + width * (kTaps * width + 1);
}

/// Returns the parameters of a connector of this form and of `deep` more of the same size, on one tp rank.
/// The encoder has this width.
std::int64_t parameters_of(const ConnectorForm& of, const ConnectorSpec& spec, std::int64_t width, int deep,
                           int tp) {
  std::int64_t sum = spec.parameters(tp);
  for (std::size_t i = 1; i < spec.widths.size(); ++i) {
    const bool is_split = i % 2 == 1 && i + 1 < spec.widths.size();  // by column, and its outputs so
    sum += is_split ? round_up(spec.widths[i], tp) / tp : spec.widths[i];
  }
  sum *= 1 + deep;
  if (!of.norm) return sum;
  const std::int64_t joined = norm_parameters(*of.norm, spec.widths.front());
  return sum + (of.selects ? joined : norm_parameters(*of.norm, width)) + deep * joined;
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

int ModelSpec::deep_before(int layer) const {
  if (!architecture) return 0;
  return static_cast<int>(
      std::ranges::count_if(architecture->deepstack, [&](int deep) { return deep < layer; }));
}

ModelSpec ModelSpec::of_second() const {
  ModelSpec model = *this;
  model.encoder = second->encoder;
  model.connector = second->connector;
  if (architecture) {
    model.architecture->front = second->front;
    model.architecture->connector = second->form;
    model.architecture->deepstack.clear();
  }
  model.second.reset();
  return model;
}

std::int64_t ModelSpec::front_parameters() const {
  return architecture && encoder.layers > 0 ? parameters_of(architecture->front, encoder.hidden) : 0;
}

std::int64_t ModelSpec::connector_parameters(int tp) const {
  if (!architecture) return connector.parameters(tp);
  return parameters_of(architecture->connector, connector, encoder.hidden, deep_features(), tp);
}

std::int64_t ModelSpec::second_encoder_parameters(int tp) const {
  if (!second) return 0;
  const TransformerSpec& spec = second->encoder;
  const std::int64_t layers = spec.layers * (spec.layer_parameters(tp) + spec.layer_vectors(tp));
  return layers + (architecture ? parameters_of(second->front, spec.hidden) : 0);
}

std::int64_t ModelSpec::second_connector_parameters(int tp) const {
  if (!second) return 0;
  if (!architecture) return second->connector.parameters(tp);
  return parameters_of(second->form, second->connector, second->encoder.hidden, 0, tp);
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
