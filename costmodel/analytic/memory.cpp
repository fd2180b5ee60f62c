#include "costmodel/analytic/memory.hpp"

#include <algorithm>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/flops.hpp"

namespace dflop {
namespace {

/// LayerBytes are bytes per token of one layer's tensors on one rank, in bf16.
struct LayerBytes {
  std::int64_t hidden;  ///< one tensor between tp regions, whole
  std::int64_t query;   ///< Q, or the attention output
  std::int64_t kv;      ///< K, or V
  std::int64_t mlp;     ///< the MLP's intermediates together
};

LayerBytes layer_bytes(const TransformerSpec& spec, int tp) {
  return {kBf16Bytes * spec.hidden, kBf16Bytes * spec.heads_per_rank(tp) * spec.head_dim,
          kBf16Bytes * spec.kv_heads_per_rank(tp) * spec.head_dim,
          kBf16Bytes * (spec.gated_mlp ? 3 : 2) * spec.ffn_per_rank(tp)};
}

/// Returns the tokens of which one rank holds the tensors between tp regions.
std::int64_t resident_tokens(std::int64_t tokens, const Stage& stage) {
  return stage.sequence_parallel ? round_up(tokens, stage.tp) / stage.tp : tokens;
}

/// Returns what one layer keeps; see activation_bytes.
std::int64_t kept(const TransformerSpec& spec, const Stage& stage, std::int64_t tokens, Recomputation mode) {
  const LayerBytes b = layer_bytes(spec, stage.tp);
  const std::int64_t resident = resident_tokens(tokens, stage);
  if (mode == Recomputation::full) return resident * b.hidden;
  const std::int64_t outputs = mode == Recomputation::selective ? 0 : b.query;
  const std::int64_t masks = spec.dropout ? b.hidden : 0;  // two of one byte a value
  const std::int64_t scaled = spec.form && spec.form->layer_scale ? 2 * b.hidden : 0;
  const std::int64_t normed = spec.form && spec.form->qk_norm ? b.query + b.kv : 0;
  return resident * (4 * b.hidden + masks + scaled) +
         tokens * (b.query + outputs + 2 * b.kv + normed + b.mlp);
}

/// Returns the gathered input of a tp region, which sequence parallelism splits only between the regions.
std::int64_t gathered(const Stage& stage, std::int64_t tensor_bytes) {
  return stage.sequence_parallel && stage.tp > 1 ? tensor_bytes : 0;
}

/// Returns what recomputation drops of one layer.
std::int64_t layer_dropped(const TransformerSpec& spec, const Stage& stage, std::int64_t tokens) {
  return kept(spec, stage, tokens, Recomputation::none) - kept(spec, stage, tokens, stage.recomputation);
}

/// Returns the most of `layers` layers, one after the other.
std::int64_t layer_workspace(Op op, const TransformerSpec& spec, int layers, const Stage& stage,
                             std::int64_t tokens) {
  const LayerBytes b = layer_bytes(spec, stage.tp);
  const int rebuilt = op == Op::backward_weight ? 0 : op == Op::backward_input ? layers : 1;
  const std::int64_t gradients = op == Op::forward ? 0 : tokens * b.mlp;
  return rebuilt * layer_dropped(spec, stage, tokens) + gradients +
         resident_tokens(tokens, stage) * b.hidden + gathered(stage, tokens * b.hidden);
}

std::int64_t merged_tokens(const ModelSpec& model, const Workload& encoder) {
  const auto rows = static_cast<std::int64_t>(seen_rows(model, encoder));
  return round_up(rows, model.connector.merge) / model.connector.merge;
}

/// Returns what the front keeps, on the ranks that share its rows: what the encoder sees and of sounds, a row
/// being of two frames, three frames for each row of the first convolution, what GELU gets of both and what
/// the second convolution gets.
std::int64_t front_kept(const ModelSpec& model, const Stage& stage, const Workload& encoder) {
  if (!model.architecture) return 0;
  const EncoderFront front = model.front();
  const auto rows = resident_tokens(static_cast<std::int64_t>(seen_rows(model, encoder)), stage) * kBf16Bytes;
  if (front.kind == FrontKind::patches) return rows * front.values;
  return rows * (2 * 3 * front.values + (2 + 1 + 3) * std::int64_t{model.encoder.hidden});
}

/// Returns the bytes of the connector's tensor at width i: between a product split by column and one split by
/// row each rank has its part.
std::int64_t connector_tensor(const ConnectorSpec& spec, std::size_t i, const Stage& stage,
                              std::int64_t tokens) {
  const std::int64_t width = spec.widths[i];
  if (i % 2 == 1) return kBf16Bytes * tokens * (round_up(width, stage.tp) / stage.tp);
  return kBf16Bytes * resident_tokens(tokens, stage) * width;
}

std::int64_t connector_kept(const ModelSpec& model, const Stage& stage, const Workload& encoder) {
  const ConnectorSpec& spec = model.connector;
  const std::int64_t tokens = merged_tokens(model, encoder);
  const bool has_norm = model.architecture && model.architecture->connector.norm;
  std::int64_t bytes = (has_norm ? 2 : 1) * connector_tensor(spec, 0, stage, tokens);
  for (std::size_t i = 1; i + 1 < spec.widths.size(); ++i)
    bytes += 2 * connector_tensor(spec, i, stage, tokens);
  return bytes;
}

/// Returns two neighbouring tensors, or their gradients, and a gathered input.
std::int64_t connector_workspace(const ModelSpec& model, const Stage& stage, const Workload& encoder) {
  const ConnectorSpec& spec = model.connector;
  const std::int64_t tokens = merged_tokens(model, encoder);
  std::int64_t most = 0;
  for (std::size_t i = 1; i < spec.widths.size(); ++i) {
    most = std::max(most,
                    connector_tensor(spec, i - 1, stage, tokens) + connector_tensor(spec, i, stage, tokens));
  }
  return most + gathered(stage, kBf16Bytes * tokens * spec.widths.front());
}

std::int64_t head_kept(const TransformerSpec& spec, const Stage& stage, std::int64_t tokens) {
  const std::int64_t value = spec.fused_cross_entropy ? kBf16Bytes : kFp32Bytes;
  const std::int64_t rows = resident_tokens(tokens, stage) * 2 * kBf16Bytes * spec.hidden;
  if (spec.logits_at_once > 0) return rows;
  return rows + tokens * value * spec.vocabulary_per_rank(stage.tp);
}

/// Returns what a head needs during a pass where the loss takes rows in chunks.
std::int64_t chunk_workspace(Op op, const TransformerSpec& spec, const Stage& stage, std::int64_t tokens) {
  const std::int64_t hidden = kBf16Bytes * spec.hidden;
  const std::int64_t all = resident_tokens(tokens, stage) * hidden;
  if (op != Op::forward || tokens == 0) return op == Op::backward_weight ? 0 : all;
  const std::int64_t value = spec.fused_cross_entropy ? kBf16Bytes : kFp32Bytes + kBf16Bytes;
  return spec.most_logit_rows(tokens, stage.tp) * (hidden + value * spec.vocabulary_per_rank(stage.tp)) +
         all + 2 * gathered(stage, tokens * hidden) + kBf16Bytes * spec.embedding_parameters(stage.tp);
}

std::int64_t head_workspace(Op op, const TransformerSpec& spec, const Stage& stage, std::int64_t tokens) {
  if (spec.logits_at_once > 0) return chunk_workspace(op, spec, stage, tokens);
  const std::int64_t hidden = kBf16Bytes * spec.hidden;
  const std::int64_t logits =
      spec.fused_cross_entropy ? 0 : tokens * kBf16Bytes * spec.vocabulary_per_rank(stage.tp);
  const std::int64_t whole = gathered(stage, tokens * hidden);
  if (op == Op::forward || tokens == 0) return logits + whole;
  const std::int64_t gradient = std::max(whole, resident_tokens(tokens, stage) * hidden);
  return logits + whole + gradient + kBf16Bytes * spec.embedding_parameters(stage.tp);
}

/// Returns the bf16 weight gradients of one layer of each module that works on the stage.
std::int64_t layer_gradients(const Stage& stage, const ModelSpec& model, const Work& work) {
  std::int64_t bytes = 0;
  if (stage.encoder_layers > 0 && !work.encoder.empty())
    bytes += kBf16Bytes * model.encoder.layer_parameters(stage.tp);
  if (stage.llm_layers > 0 && !work.llm.empty()) bytes += kBf16Bytes * model.llm.layer_parameters(stage.tp);
  return bytes;
}

}  // namespace

ModelState model_state_bytes(const Stage& stage, const ModelSpec& model) {
  const std::int64_t parameters = stage_parameters(stage, model);
  const int shares = stage.zero1 ? stage.dp : 1;
  const bool fp32 = stage.optimizer_states == OptimizerStates::fp32;
  const std::int64_t gradient = fp32 ? kFp32Bytes : 2 * kBf16Bytes;    // bf16: and its bucket
  const std::int64_t states = fp32 ? 3 * kFp32Bytes : 2 * kBf16Bytes;  // fp32: a copy of the parameter, too
  return {
      {kBf16Bytes * parameters}, {gradient * parameters}, {round_up(states * parameters, shares) / shares}};
}

Bytes activation_bytes(const Stage& stage, const ModelSpec& model, const Work& work) {
  std::int64_t bytes =
      stage.encoder_layers * kept(model.encoder, stage, work.encoder.tokens, stage.recomputation) +
      stage.llm_layers * kept(model.llm, stage, work.llm.tokens, stage.recomputation);
  if (stage.front) bytes += front_kept(model, stage, work.encoder);
  if (stage.connector) bytes += connector_kept(model, stage, work.encoder);
  if (stage.head) bytes += head_kept(model.llm, stage, work.llm.tokens);
  return {bytes};
}

Bytes split_activation_bytes(const Stage& stage, const ModelSpec& model, const Work& work) {
  Stage whole = stage;
  whole.recomputation = Recomputation::none;
  return activation_bytes(whole, model, work);
}

Bytes workspace_bytes(Op op, const Stage& stage, const ModelSpec& model, const Work& work) {
  std::int64_t most = 0;
  if (stage.head) most = head_workspace(op, model.llm, stage, work.llm.tokens);
  if (stage.llm_layers > 0) {
    most = std::max(most, layer_workspace(op, model.llm, stage.llm_layers, stage, work.llm.tokens));
  }
  // A backward comes to the encoder when the layers of the LLM have been rebuilt.
  const std::int64_t stays =
      op == Op::backward_input ? stage.llm_layers * layer_dropped(model.llm, stage, work.llm.tokens) : 0;
  if (stage.connector) {
    most = std::max(most, stays + connector_workspace(model, stage, work.encoder));
  }
  if (stage.encoder_layers > 0) {
    most = std::max(
        most, stays + layer_workspace(op, model.encoder, stage.encoder_layers, stage, work.encoder.tokens));
  }
  return {most + layer_gradients(stage, model, work)};
}

}  // namespace dflop
