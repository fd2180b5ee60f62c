#include "core/kernel_choice/kernel_calls.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace dflop {
namespace {

/// A UnitCalls collects the kernel calls of one unit.
class UnitCalls {
 public:
  explicit UnitCalls(std::int64_t tokens) : tokens_(tokens) {}

  std::vector<UnitCall> take() { return std::move(calls_); }

  /// Adds the three products of a linear layer whose weight is [outer, inner] on this rank.
  void linear(std::int64_t inner, std::int64_t outer, bool input_gradient = true, bool again = false) {
    add(KernelPass::forward, KernelOperation::linear, inner, outer);
    if (input_gradient) add(KernelPass::backward_input, KernelOperation::linear_backward_input, inner, outer);
    add(KernelPass::backward_weight, KernelOperation::linear_backward_weight, inner, outer);
    if (again) add(KernelPass::recompute, KernelOperation::linear, inner, outer);
  }

  /// Adds an activation with `columns` output columns on this rank; a gated one has twice as many input
  /// columns. Other GELUs than tanh's have no variants.
  void activation(Activation kind, std::int64_t columns, bool again) {
    if (kind == Activation::gelu_erf || kind == Activation::gelu_quick) return;
    const bool gated = kind == Activation::swiglu;
    const KernelOperation forward = gated ? KernelOperation::swiglu : KernelOperation::gelu;
    const KernelOperation backward =
        gated ? KernelOperation::swiglu_backward : KernelOperation::gelu_backward;
    add(KernelPass::forward, forward, 0, columns);
    add(KernelPass::backward_input, backward, 0, gated ? 2 * columns : columns);
    if (again) add(KernelPass::recompute, forward, 0, columns);
  }

  void attention(const AttentionHeads& heads, std::int64_t pairs) {
    const auto attend = [&](KernelPass pass, KernelOperation operation) {
      calls_.push_back({pass, attention_call(operation, heads, tokens_, pairs)});
    };
    attend(KernelPass::forward, KernelOperation::attention);
    attend(KernelPass::backward_input, KernelOperation::attention_backward);
    attend(KernelPass::recompute, KernelOperation::attention);
  }

 private:
  void add(KernelPass pass, KernelOperation operation, std::int64_t inner, std::int64_t outer) {
    calls_.push_back({pass, KernelCall{.operation = operation,
                                       .inner = static_cast<std::int32_t>(inner),
                                       .outer = static_cast<std::int32_t>(outer),
                                       .tokens = tokens_}});
  }

  std::int64_t tokens_;
  std::vector<UnitCall> calls_;
};

AttentionHeads heads_of(const TransformerSpec& spec, int tp) {
  return {spec.heads / tp, spec.kv_heads / tp, spec.head_dim, spec.causal};
}

/// Returns the calls of a layer's linear part. Recomputation repeats all of them except the output's.
std::vector<UnitCall> layer_calls(const TransformerSpec& spec, int tp, std::int64_t tokens) {
  const AttentionHeads heads = heads_of(spec, tp);
  const std::int64_t queries = std::int64_t{heads.heads} * spec.head_dim;
  const std::int64_t keys = std::int64_t{heads.kv_heads} * spec.head_dim;
  const std::int64_t ffn = spec.ffn_per_rank(tp);
  UnitCalls calls(tokens);
  calls.linear(spec.hidden, queries + 2 * keys, true, true);
  calls.linear(queries, spec.hidden, true, true);
  calls.linear(spec.hidden, spec.gated_mlp ? 2 * ffn : ffn, true, true);
  calls.activation(spec.layer_form().activation, ffn, true);
  calls.linear(ffn, spec.hidden);
  return calls.take();
}

std::vector<UnitCall> attention_calls(const TransformerSpec& spec, int tp, const Workload& work) {
  UnitCalls calls(work.tokens);
  calls.attention(heads_of(spec, tp), work.attention_pairs);
  return calls.take();
}

/// Returns the calls of the head. If the loss takes rows in chunks, all calls belong to the forward. A live
/// step makes fewer calls, because it skips rows that are not trained.
std::vector<UnitCall> head_calls(const TransformerSpec& spec, int tp, std::int64_t tokens) {
  const std::int64_t chunks = spec.logit_chunks(tokens, tp);
  std::vector<UnitCall> all;
  for (std::int64_t c = 0; c < chunks; ++c) {
    UnitCalls calls(tokens * (c + 1) / chunks - tokens * c / chunks);
    calls.linear(spec.hidden, spec.vocabulary_per_rank(tp));
    for (UnitCall call : calls.take()) {
      if (spec.logits_at_once > 0) call.pass = KernelPass::forward;
      all.push_back(call);
    }
  }
  return all;
}

/// Returns the calls of the connector: the first layer is split by rows and the second by columns, and so on
/// in pairs; a last layer without a partner is not split. Activations lie between them.
std::vector<UnitCall> connector_calls(const ModelSpec& model, int tp, std::int64_t tokens) {
  const ConnectorSpec& spec = model.connector;
  UnitCalls calls(tokens / spec.merge);
  for (std::size_t i = 0; i + 1 < spec.widths.size(); ++i) {
    const bool by_columns = i % 2 == 1;
    const bool by_rows = !by_columns && i + 2 < spec.widths.size();
    const auto share = [&](std::int64_t width) { return round_up(width, tp) / tp; };
    const std::int64_t inner = by_columns ? share(spec.widths[i]) : spec.widths[i];
    if (i > 0) calls.activation(model.connector_form().activation, inner, false);
    calls.linear(inner, by_rows ? share(spec.widths[i + 1]) : spec.widths[i + 1]);
  }
  return calls.take();
}

bool takes_part(KernelPass pass, Op op, Recomputation recomputation, ProfileUnit unit) {
  switch (pass) {
    case KernelPass::forward:
      return op == Op::forward;
    case KernelPass::backward_input:
      return op == Op::backward || op == Op::backward_input;
    case KernelPass::backward_weight:
      return op == Op::backward || op == Op::backward_weight;
    case KernelPass::recompute:
      return (op == Op::backward || op == Op::backward_input) &&
             (recomputation == Recomputation::full ||
              (recomputation == Recomputation::selective && is_attention(unit)));
  }
  return false;
}

}  // namespace

std::vector<UnitCall> unit_kernel_calls(const ModelSpec& model, ProfileUnit unit, const TpMode& mode,
                                        const Workload& work) {
  if (work.tokens == 0) return {};
  const int tp = mode.tp;
  switch (unit) {
    case ProfileUnit::patches: {
      // Each rank embeds its own rows with the whole weight.
      UnitCalls calls(mode.sequence_parallel ? (work.tokens + tp - 1) / tp : work.tokens);
      const EncoderFront front = model.front();
      if (front.kind == FrontKind::patches) {
        calls.linear(front.values, model.encoder.hidden, false);
        return calls.take();
      }
      // There are two convolutions; the first has twice as many rows.
      UnitCalls first(2 * work.tokens / (mode.sequence_parallel ? tp : 1));
      first.linear(3 * std::int64_t{front.values}, model.encoder.hidden, false);
      std::vector<UnitCall> both = first.take();
      calls.linear(3 * std::int64_t{model.encoder.hidden}, model.encoder.hidden);
      const std::vector<UnitCall> second = calls.take();
      both.insert(both.end(), second.begin(), second.end());
      return both;
    }
    case ProfileUnit::encoder_linear:
      return layer_calls(model.encoder, tp, work.tokens);
    case ProfileUnit::encoder_attention:
      return attention_calls(model.encoder, tp, work);
    case ProfileUnit::connector:
      return connector_calls(model, tp, work.tokens);
    case ProfileUnit::embedding:
      return {};
    case ProfileUnit::llm_linear:
      return layer_calls(model.llm, tp, work.tokens);
    case ProfileUnit::llm_attention:
      return attention_calls(model.llm, tp, work);
    case ProfileUnit::head:
      return head_calls(model.llm, tp, work.tokens);
  }
  return {};
}

std::vector<StageCall> stage_kernel_calls(const ModelSpec& model, const Stage& stage, bool patches, Op op,
                                          const Work& work) {
  std::vector<StageCall> all;
  const auto add_call = [&](const StageCall& made) {
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const StageCall& other) { return other.call == made.call; });
    if (same != all.end()) {
      same->times += made.times;
    } else {
      all.push_back(made);
    }
  };
  const auto add = [&](ProfileUnit unit, const Workload& of_module, std::int64_t times) {
    if (times == 0) return;
    for (const UnitCall& unit_call : unit_kernel_calls(model, unit, tp_mode(stage), of_module)) {
      if (takes_part(unit_call.pass, op, stage.recomputation, unit)) add_call({unit_call.call, times});
    }
  };
  add(ProfileUnit::patches, work.encoder, patches ? 1 : 0);
  add(ProfileUnit::encoder_linear, work.encoder, stage.encoder_layers);
  add(ProfileUnit::encoder_attention, work.encoder, stage.encoder_layers);
  add(ProfileUnit::connector, work.encoder, stage.connector ? 1 : 0);
  if (work.has_second(stage, model)) {
    for (const StageCall& made :
         stage_kernel_calls(model.of_second(), stage_of_second(stage, model), true, op, work.of_second()))
      add_call(made);
  }
  add(ProfileUnit::llm_linear, work.llm, stage.llm_layers);
  add(ProfileUnit::llm_attention, work.llm, stage.llm_layers);
  add(ProfileUnit::head, work.llm, stage.head ? 1 : 0);
  return all;
}

}  // namespace dflop
