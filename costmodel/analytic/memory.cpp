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

/// Returns the number of tokens whose tensors between tp regions one rank holds.
std::int64_t resident_tokens(std::int64_t tokens, const Stage& stage) {
  return stage.sequence_parallel ? round_up(tokens, stage.tp) / stage.tp : tokens;
}

/// A Passes says which passes besides the forward the layers of a module have.
struct Passes {
  bool backward = true;         ///< something in or before the layers is trained
  bool weights = true;          ///< the layers' own weights are trained
  std::int64_t lora_bytes = 0;  ///< per token, between the two matrices of each of LoRA's pairs

  /// Returns whether weight gradients are computed, for the layers' own weights or for LoRA's.
  bool makes_weights() const { return weights || lora_bytes > 0; }
};

Passes encoder_passes(const TrainedParts& trained) {
  return {trained.encoder, trained.encoder, 0};
}

/// The LLM comes last, so gradients pass through it whatever is trained.
Passes llm_passes(const TrainedParts& trained, const TransformerSpec& llm) {
  const std::int64_t matrices = llm.gated_mlp ? 7 : 6;
  return {true, trained.llm, kBf16Bytes * matrices * trained.lora_rank};
}

/// Returns the bytes that one layer keeps; see activation_bytes().
std::int64_t kept(const TransformerSpec& spec, const Stage& stage, std::int64_t tokens, Recomputation mode,
                  const Passes& passes) {
  if (!passes.backward) return 0;
  const LayerBytes b = layer_bytes(spec, stage.tp);
  const std::int64_t resident = resident_tokens(tokens, stage);
  if (mode == Recomputation::full) return resident * b.hidden;
  const std::int64_t outputs = mode == Recomputation::selective ? 0 : b.query;
  const std::int64_t masks = spec.dropout ? b.hidden : 0;  // two, of one byte a value
  const std::int64_t scaled = spec.form && spec.form->layer_scale && passes.weights ? 2 * b.hidden : 0;
  const std::int64_t normed = spec.form && spec.form->qk_norm != QkNormKind::none ? b.query + b.kv : 0;
  const std::int64_t inputs = passes.makes_weights() ? 2 * b.hidden : 0;
  const std::int64_t down_input = passes.makes_weights() ? 0 : b.mlp / (spec.gated_mlp ? 3 : 2);
  return resident * (2 * b.hidden + inputs + masks + scaled) +
         tokens * (b.query + outputs + 2 * b.kv + normed + b.mlp - down_input + passes.lora_bytes);
}

/// Returns the size of a tp region's gathered input, which sequence parallelism splits only between the
/// regions.
std::int64_t gathered(const Stage& stage, std::int64_t tensor_bytes) {
  return stage.sequence_parallel && stage.tp > 1 ? tensor_bytes : 0;
}

/// Returns the bytes that one layer needs beyond the kept ones: in the forward, everything that a layer with
/// trained weights would keep; in the backward, everything that recomputation restores.
std::int64_t layer_dropped(Op op, const TransformerSpec& spec, const Stage& stage, std::int64_t tokens,
                           const Passes& passes) {
  Passes made = passes;
  if (op == Op::forward) made.backward = made.weights = true;
  const bool keeps_all = made.backward == passes.backward && made.weights == passes.weights;
  if (keeps_all && stage.recomputation == Recomputation::none) return 0;
  return kept(spec, stage, tokens, Recomputation::none, made) -
         kept(spec, stage, tokens, stage.recomputation, passes);
}

/// Returns the max over `layers` layers, which run one after the other.
std::int64_t layer_workspace(Op op, const TransformerSpec& spec, int layers, const Stage& stage,
                             std::int64_t tokens, const Passes& passes) {
  if (op != Op::forward && !passes.backward) return 0;
  if (op == Op::backward_weight && !passes.makes_weights()) return 0;
  const LayerBytes b = layer_bytes(spec, stage.tp);
  const bool leaves = op == Op::backward_input && passes.makes_weights();
  const int rebuilt = op == Op::backward_weight ? 0 : leaves ? layers : 1;
  const std::int64_t gradients = op == Op::forward ? 0 : tokens * b.mlp;
  return rebuilt * layer_dropped(op, spec, stage, tokens, passes) + gradients +
         resident_tokens(tokens, stage) * b.hidden + gathered(stage, tokens * b.hidden);
}

std::int64_t merged_tokens(const ModelSpec& model, const Workload& encoder) {
  const auto rows = static_cast<std::int64_t>(seen_rows(model, encoder));
  return round_up(rows, model.connector.merge) / model.connector.merge;
}

/// Returns the bytes that the front keeps on one of the ranks that share its rows. For patches, this is the
/// input data, and a norm's input. A row of sounds covers two frames, so it keeps two inputs of the first
/// convolution (three frames each) and two of the first GELU. It also keeps one input of the second GELU and
/// one of the second convolution (three rows).
std::int64_t front_kept(const ModelSpec& model, const Stage& stage, const Workload& encoder) {
  if (!model.architecture) return 0;
  const EncoderFront front = model.front();
  const auto rows = resident_tokens(static_cast<std::int64_t>(seen_rows(model, encoder)), stage) * kBf16Bytes;
  if (front.kind == FrontKind::patches)
    return rows * (front.values + (front.norm ? model.encoder.hidden : 0));
  return rows * (2 * 3 * front.values + (2 + 1 + 3) * std::int64_t{model.encoder.hidden});
}

/// Returns the bytes of the connector's tensor at width i: between a product split by column and one split by
/// row, each rank has only its part.
std::int64_t connector_tensor(const ConnectorSpec& spec, std::size_t i, const Stage& stage,
                              std::int64_t tokens) {
  const std::int64_t width = spec.widths[i];
  if (i % 2 == 1) return kBf16Bytes * tokens * (round_up(width, stage.tp) / stage.tp);
  return kBf16Bytes * resident_tokens(tokens, stage) * width;
}

std::int64_t connector_kept(const ModelSpec& model, const Stage& stage, const Workload& encoder) {
  if (!stage.trained.reaches_connector()) return 0;
  const ConnectorSpec& spec = model.connector;
  const std::int64_t tokens = merged_tokens(model, encoder);
  const int inputs = stage.trained.connector ? 1 : 0;  // of products, for their weight gradients
  std::int64_t bytes =
      ((model.has_connector_norm() ? 1 : 0) + inputs) * connector_tensor(spec, 0, stage, tokens);
  for (std::size_t i = 1; i + 1 < spec.widths.size(); ++i)
    bytes += (1 + inputs) * connector_tensor(spec, i, stage, tokens);
  return (1 + model.deep_features()) * bytes;
}

/// Returns the size of two adjacent tensors, or their gradients, and a gathered input.
std::int64_t connector_workspace(Op op, const ModelSpec& model, const Stage& stage, const Workload& encoder) {
  if (op != Op::forward && !stage.trained.reaches_connector()) return 0;
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
  const std::int64_t row = resident_tokens(tokens, stage) * kBf16Bytes * spec.hidden;
  if (spec.logits_at_once > 0) return 2 * row;
  return (stage.trained.llm ? 2 : 1) * row + tokens * value * spec.vocabulary_per_rank(stage.tp);
}

/// Returns the size of the bf16 gradient of the head's weights, if they are trained.
std::int64_t head_gradient(const TransformerSpec& spec, const Stage& stage) {
  return stage.trained.llm ? kBf16Bytes * spec.embedding_parameters(stage.tp) : 0;
}

/// Returns the memory that a head needs during a pass if the loss takes rows in chunks.
std::int64_t chunk_workspace(Op op, const TransformerSpec& spec, const Stage& stage, std::int64_t tokens) {
  const std::int64_t hidden = kBf16Bytes * spec.hidden;
  const std::int64_t all = resident_tokens(tokens, stage) * hidden;
  if (op != Op::forward || tokens == 0) return op == Op::backward_weight ? 0 : all;
  const std::int64_t value = spec.fused_cross_entropy ? kBf16Bytes : kFp32Bytes + kBf16Bytes;
  return spec.most_logit_rows(tokens, stage.tp) * (hidden + value * spec.vocabulary_per_rank(stage.tp)) +
         all + 2 * gathered(stage, tokens * hidden) + head_gradient(spec, stage);
}

std::int64_t head_workspace(Op op, const TransformerSpec& spec, const Stage& stage, std::int64_t tokens) {
  if (spec.logits_at_once > 0) return chunk_workspace(op, spec, stage, tokens);
  if (op == Op::backward_weight && !stage.trained.llm) return 0;
  const std::int64_t hidden = kBf16Bytes * spec.hidden;
  const std::int64_t logits =
      spec.fused_cross_entropy ? 0 : tokens * kBf16Bytes * spec.vocabulary_per_rank(stage.tp);
  const std::int64_t whole = gathered(stage, tokens * hidden);
  if (op == Op::forward || tokens == 0) return logits + whole;
  const std::int64_t gradient = std::max(whole, resident_tokens(tokens, stage) * hidden);
  return logits + whole + gradient + head_gradient(spec, stage);
}

/// Returns the size of the bf16 weight gradients of one layer of each module that works on the stage.
std::int64_t layer_gradients(const Stage& stage, const ModelSpec& model, const Work& work) {
  const TrainedParts& trained = stage.trained;
  std::int64_t parameters = 0;
  if (stage.encoder_layers > 0 && work.encoder.tokens > 0 && trained.encoder)
    parameters += model.encoder.layer_parameters(stage.tp);
  if (stage.llm_layers > 0 && !work.llm.empty()) {
    if (trained.llm) parameters += model.llm.layer_parameters(stage.tp);
    parameters += model.llm.adapter_parameters(trained.lora_rank, stage.tp);
  }
  return kBf16Bytes * parameters;
}

/// Returns the bytes that a stage keeps for its layers and ends; `mode` applies to its layers.
std::int64_t kept_by_stage(const Stage& stage, const ModelSpec& model, const Work& work, Recomputation mode) {
  const TrainedParts& trained = stage.trained;
  const Passes encoder = encoder_passes(trained);
  const Passes llm = llm_passes(trained, model.llm);
  std::int64_t bytes = stage.encoder_layers * kept(model.encoder, stage, work.encoder.tokens, mode, encoder) +
                       stage.llm_layers * kept(model.llm, stage, work.llm.tokens, mode, llm);
  if (stage.front && trained.encoder) bytes += front_kept(model, stage, work.encoder);
  if (stage.connector) bytes += connector_kept(model, stage, work.encoder);
  if (stage.head) bytes += head_kept(model.llm, stage, work.llm.tokens);
  return bytes;
}

}  // namespace

ModelState model_state_bytes(const Stage& stage, const ModelSpec& model) {
  const std::int64_t trained = trained_parameters(stage, model);
  const int shares = stage.zero1 ? stage.dp : 1;
  const bool fp32 = stage.optimizer_states == OptimizerStates::fp32;
  const std::int64_t gradient = fp32 ? kFp32Bytes : 2 * kBf16Bytes;    // bf16: also its bucket
  const std::int64_t states = fp32 ? 3 * kFp32Bytes : 2 * kBf16Bytes;  // fp32: also a copy of the parameter
  return {{kBf16Bytes * stage_parameters(stage, model)},
          {gradient * trained},
          {round_up(states * trained, shares) / shares}};
}

Bytes activation_bytes(const Stage& stage, const ModelSpec& model, const Work& work) {
  Bytes bytes{kept_by_stage(stage, model, work, stage.recomputation)};
  if (work.has_second(stage, model))
    bytes += activation_bytes(stage_of_second(stage, model), model.of_second(), work.of_second());
  return bytes;
}

Bytes split_activation_bytes(const Stage& stage, const ModelSpec& model, const Work& work) {
  Stage left = stage;  // the parts whose weight gradients remain to be computed
  if (!stage.trained.encoder) left.encoder_layers = 0;
  if (!stage.trained.connector) left.connector = false;
  if (!stage.trained.in_llm()) left.llm_layers = 0;
  if (!stage.trained.llm) left.head = false;
  Bytes bytes{kept_by_stage(left, model, work, Recomputation::none)};
  if (work.has_second(stage, model))
    bytes += split_activation_bytes(stage_of_second(stage, model), model.of_second(), work.of_second());
  return bytes;
}

Bytes workspace_bytes(Op op, const Stage& stage, const ModelSpec& model, const Work& work) {
  const Passes encoder = encoder_passes(stage.trained);
  const Passes llm = llm_passes(stage.trained, model.llm);
  const std::int64_t llm_tokens = work.llm.tokens;
  std::int64_t most = 0;
  if (stage.head) most = head_workspace(op, model.llm, stage, llm_tokens);
  if (stage.llm_layers > 0) {
    most = std::max(most, layer_workspace(op, model.llm, stage.llm_layers, stage, llm_tokens, llm));
  }
  // The backward reaches the encoder when the layers of the LLM have been rebuilt.
  const bool leaves = op == Op::backward_input && llm.makes_weights();
  const std::int64_t stays =
      leaves ? stage.llm_layers * layer_dropped(op, model.llm, stage, llm_tokens, llm) : 0;
  if (stage.connector) {
    most = std::max(most, stays + connector_workspace(op, model, stage, work.encoder));
  }
  if (stage.copies > 1) {
    // The outputs of all copies are gathered, padded to the largest, and then packed.
    const std::int64_t rows = stage.connector ? merged_tokens(model, work.encoder) : work.encoder.tokens;
    most = std::max(most, 2 * stage.copies * rows * kBf16Bytes * model.sent_width());
  }
  if (stage.encoder_layers > 0) {
    most = std::max(most, stays + layer_workspace(op, model.encoder, stage.encoder_layers, stage,
                                                  work.encoder.tokens, encoder));
  }
  const Bytes gradients{layer_gradients(stage, model, work)};
  if (!work.has_second(stage, model)) return Bytes{most} + gradients;
  // The backward of the second encoder runs before the first one's. Layers that it rebuilds stay until the
  // weight gradients are computed.
  const Stage own = stage_of_second(stage, model);
  const ModelSpec second = model.of_second();
  const Work its_work = work.of_second();
  Bytes rebuilt{0};
  if (op == Op::backward_input && stage.trained.encoder)
    rebuilt = split_activation_bytes(own, second, its_work) - activation_bytes(own, second, its_work);
  return gradients +
         std::max(Bytes{most} + rebuilt, Bytes{stays} + workspace_bytes(op, own, second, its_work));
}

}  // namespace dflop
