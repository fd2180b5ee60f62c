#include "costmodel/analytic/roofline.hpp"

#include <algorithm>
#include <limits>

#include "costmodel/analytic/flops.hpp"

namespace dflop {
namespace {

constexpr double kElementBytes = kBf16Bytes;
constexpr double kAccumulateBytes = 2 * kFp32Bytes;  // a gradient, read and written
constexpr std::int64_t kHeadDimMultiple = 32;
constexpr double kAttentionBackwardFlop = 2.5;

/// Returns (x + half) / x: the ratio of a kernel's time to its limit for large x.
double slowdown(double x, double half) {
  return 1 + half / x;
}

/// Widths are the widths on one rank.
struct Widths {
  double hidden;
  double query;
  double kv;
  double ffn;
};

Widths widths_of(const TransformerSpec& spec, int tp) {
  return {static_cast<double>(spec.hidden), static_cast<double>(spec.heads_per_rank(tp) * spec.head_dim),
          static_cast<double>(spec.kv_heads_per_rank(tp) * spec.head_dim),
          static_cast<double>(spec.ffn_per_rank(tp))};
}

PassTimes overhead(const Processor& gpu) {
  return {gpu.kernel_overhead, gpu.kernel_overhead, Seconds(0)};
}

/// ElementCounts are the elements per token that a layer's passes move.
struct ElementCounts {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
};

/// Returns the elements that a form moves in addition to norms, residual adds and the activation; see
/// transformer_layer().
ElementCounts form_streams(const TransformerSpec& spec, const Widths& w, double hidden) {
  const double turned = w.query + w.kv;
  if (!spec.form) return {2 * turned, 2 * turned, 0};
  const LayerForm& form = *spec.form;
  ElementCounts moved;
  if (form.rotary) moved = {2 * turned, 2 * turned, 0};
  if (form.qk_norm != QkNormKind::none) {
    moved.forward += 2 * turned;
    moved.backward_input += 3 * turned;
  }
  if (form.layer_scale) {
    moved.forward += 4 * hidden;
    moved.backward_input += 8 * hidden;
  }
  if (form.qkv_bias) moved.backward_weight += w.query + 2 * w.kv;
  if (form.output_bias) moved.backward_weight += w.hidden;
  if (form.mlp_bias) moved.backward_weight += (spec.gated_mlp ? 2 : 1) * w.ffn + w.hidden;
  return moved;
}

PassTimes layer_streams(const Processor& gpu, const TransformerSpec& spec, const Widths& w, double tokens,
                        double hidden_split) {
  const double hidden = w.hidden / hidden_split;
  const ElementCounts form = form_streams(spec, w, hidden);
  const double forward = 10 * hidden + form.forward + (spec.gated_mlp ? 3 : 2) * w.ffn;
  const double backward = 12 * hidden + form.backward_input + (spec.gated_mlp ? 5 : 3) * w.ffn;
  return {memory_time(gpu, kElementBytes * tokens * forward),
          memory_time(gpu, kElementBytes * tokens * backward),
          memory_time(gpu, kElementBytes * tokens * form.backward_weight)};
}

}  // namespace

Processor::Processor(const ClusterSpec& cluster)
    : flop_per_s(cluster.gpu.peak_flop_per_s),
      bytes_per_s(cluster.gpu.memory_bandwidth_bytes_per_s),
      kernel_overhead(cluster.software.kernel_overhead),
      software(cluster.software) {}

Processor::Processor(const ClusterSpec& cluster, double share) : Processor(cluster) {
  flop_per_s *= share;
  bytes_per_s *= std::min(1.0, share / cluster.gpu.saturating_share) / software.shared_cache_factor;
}

Processor Processor::of_traffic(const ClusterSpec& cluster) {
  Processor gpu(cluster);
  gpu.flop_per_s = std::numeric_limits<double>::infinity();
  gpu.bytes_per_s /= gpu.software.shared_cache_factor;
  gpu.kernel_overhead = Seconds(0);
  return gpu;
}

Seconds memory_time(const Processor& gpu, double bytes) {
  return Seconds(bytes / (gpu.bytes_per_s * gpu.software.memory_efficiency));
}

PassTimes matrix_product(const Processor& gpu, double tokens, double inputs, double outputs) {
  const double weights = inputs * outputs;
  const double activations = tokens * (inputs + outputs);
  // Here tokens + half = tokens * slowdown(tokens, half)
  const double saturated_flop = linear_flop(weights, tokens + gpu.software.gemm_half_tokens).count *
                                slowdown(std::min(inputs, outputs), gpu.software.gemm_half_width);
  const Seconds arithmetic(saturated_flop / (gpu.flop_per_s * gpu.software.gemm_efficiency));
  const Seconds traffic = memory_time(gpu, kElementBytes * (activations + weights));
  const Seconds weight_traffic = memory_time(gpu, kElementBytes * activations + kAccumulateBytes * weights);
  const Seconds forward = std::max(arithmetic, traffic);
  return {forward, forward, std::max(arithmetic, weight_traffic)};
}

namespace {

/// Prices attention whose matrix goes through memory; see attention_core() in the header.
PassTimes materialized_attention(const Processor& gpu, const TransformerSpec& spec, const Workload& work,
                                 int tp) {
  const double values =
      static_cast<double>(work.attention_pairs) * static_cast<double>(spec.heads_per_rank(tp));
  const Seconds byte = memory_time(gpu, values);
  const Seconds arithmetic(linear_flop(spec.head_dim, values).count /
                           (gpu.flop_per_s * gpu.software.gemm_efficiency));
  const Seconds product = std::max(arithmetic, kElementBytes * byte);
  const double dropout = spec.dropout ? 5 : 0;
  return {2 * product + (4 + dropout) * byte, 4 * product + (6 + dropout) * byte, Seconds(0)};
}

}  // namespace

PassTimes attention_core(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp) {
  if (spec.attention != AttentionKernel::flash) return materialized_attention(gpu, spec, work, tp);
  const Widths w = widths_of(spec, tp);
  const double tokens = static_cast<double>(work.tokens);
  const double pairs = static_cast<double>(work.attention_pairs);
  const double padding =
      static_cast<double>(round_up(spec.head_dim, kHeadDimMultiple)) / static_cast<double>(spec.head_dim);
  // This is pairs * slowdown(pairs / tokens, half)
  const double saturated_pairs = pairs + gpu.software.attention_half_tokens * tokens;
  const double flop_per_pair = attention_flop(spec, {1, 1, 1}, tp).count;
  const double ideal = flop_per_pair * saturated_pairs * padding *
                       slowdown(w.query, gpu.software.gemm_half_width) / gpu.flop_per_s;
  const double operands = kElementBytes * tokens * 2 * (w.query + w.kv);
  const Seconds forward =
      std::max(Seconds(ideal / gpu.software.attention_forward_efficiency), memory_time(gpu, operands));
  const Seconds backward =
      std::max(Seconds(kAttentionBackwardFlop * ideal / gpu.software.attention_backward_efficiency),
               memory_time(gpu, 2 * operands));
  return {forward, backward, Seconds(0)};
}

PassTimes transformer_layer(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp,
                            bool sequence_parallel) {
  const Widths w = widths_of(spec, tp);
  const double tokens = static_cast<double>(work.tokens);
  PassTimes times = matrix_product(gpu, tokens, w.hidden, w.query + 2 * w.kv);
  times += matrix_product(gpu, tokens, w.query, w.hidden);
  times += matrix_product(gpu, tokens, w.hidden, (spec.gated_mlp ? 2 : 1) * w.ffn);
  times += matrix_product(gpu, tokens, w.ffn, w.hidden);
  times += attention_core(gpu, spec, work, tp);
  times += layer_streams(gpu, spec, w, tokens, sequence_parallel ? tp : 1);
  times += overhead(gpu);
  return times;
}

PassTimes adapters(const Processor& gpu, const TransformerSpec& spec, int lora_rank, double tokens, int tp) {
  const Widths w = widths_of(spec, tp);
  PassTimes times;
  const auto add = [&](double inputs, double outputs, int count) {
    PassTimes pair = matrix_product(gpu, tokens, inputs, lora_rank);
    pair += matrix_product(gpu, tokens, lora_rank, outputs);
    pair.forward += memory_time(gpu, 3 * kElementBytes * tokens * outputs);
    pair.backward_input += memory_time(gpu, 3 * kElementBytes * tokens * inputs);
    for (int i = 0; i < count; ++i) times += pair;
  };
  add(w.hidden, w.query, 1);
  add(w.hidden, w.kv, 2);
  add(w.query, w.hidden, 1);
  add(w.hidden, w.ffn, spec.gated_mlp ? 2 : 1);
  add(w.ffn, w.hidden, 1);
  return times;
}

PassTimes norm(const Processor& gpu, double width, double rows) {
  const double elements = kElementBytes * width * rows;
  return {memory_time(gpu, 2 * elements), memory_time(gpu, 3 * elements), Seconds(0)};
}

PassTimes front(const Processor& gpu, const ModelSpec& model, const Workload& encoder, int split) {
  if (!model.architecture) return {};
  const EncoderFront of = model.front();
  const double width = model.encoder.hidden;
  const double rows = seen_rows(model, encoder) / split;
  const double elements = kElementBytes * width * rows;
  PassTimes times = overhead(gpu);
  const bool is_sound = of.kind == FrontKind::sound;
  PassTimes first = matrix_product(gpu, is_sound ? 2 * rows : rows, (is_sound ? 3 : 1) * of.values, width);
  first.backward_input = Seconds(0);  // the input data need no gradient
  times += first;
  if (is_sound) {
    times += matrix_product(gpu, rows, 3 * width, width);
    const double both = 3 * elements;  // for the outputs of both convolutions
    times += {memory_time(gpu, 2 * both), memory_time(gpu, 3 * both), Seconds(0)};
    times += {memory_time(gpu, 6 * elements), memory_time(gpu, 6 * elements), Seconds(0)};
  }
  if (of.table > 0) times.forward += memory_time(gpu, 3 * elements);
  if (of.table > 0 && !of.frozen_table) times.backward_weight += memory_time(gpu, 3 * elements);
  if (of.bias) times.backward_weight += memory_time(gpu, (is_sound ? 3 : 1) * elements);
  return times;
}

PassTimes connector(const Processor& gpu, const ModelSpec& model, const Workload& encoder, int tp,
                    const TrainedParts& trained) {
  const ConnectorSpec& spec = model.connector;
  const double tokens = connector_tokens(model, encoder);
  PassTimes times = overhead(gpu);
  if (model.architecture) {
    const ConnectorForm form = model.connector_form();
    const double selected = kElementBytes * seen_rows(model, encoder) * model.encoder.hidden;
    if (form.selects) {
      const Seconds picked = memory_time(gpu, 2 * selected);
      times += {picked, trained.encoder ? picked : Seconds(0), Seconds(0)};
    }
    if (form.norm) times += norm(gpu, spec.widths.front(), tokens);
  }
  for (std::size_t i = 1; i < spec.widths.size(); ++i) {
    const bool by_column = i % 2 == 1;
    const double inputs = spec.widths[i - 1] / (by_column ? 1.0 : tp);
    const double outputs = spec.widths[i] / (by_column ? tp : 1.0);
    PassTimes product = matrix_product(gpu, tokens, inputs, outputs);
    if (i == 1 && !trained.encoder && !model.has_connector_norm()) product.backward_input = Seconds(0);
    times += product;
    const double elements = kElementBytes * tokens * outputs;
    if (model.architecture) times.backward_weight += memory_time(gpu, elements);
    if (i + 1 == spec.widths.size()) break;
    times += {memory_time(gpu, 2 * elements), memory_time(gpu, 3 * elements), Seconds(0)};
  }
  if (!trained.reaches_connector()) times.backward_input = Seconds(0);
  if (!trained.connector) times.backward_weight = Seconds(0);
  return times;
}

PassTimes vocabulary_head(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp,
                          bool is_trained) {
  const double tokens = static_cast<double>(work.tokens);
  const double vocabulary = static_cast<double>(spec.vocabulary_per_rank(tp));
  // Assumes that all chunks have the max size, so that more rows never take less time per row.
  const double chunk = static_cast<double>(spec.most_logit_rows(work.tokens, tp));
  const double chunks = work.tokens == 0 ? 1 : tokens / chunk;
  PassTimes times = matrix_product(gpu, tokens / chunks, spec.hidden, vocabulary);
  const double weights = is_trained ? chunks : 0;
  times = {chunks * times.forward, chunks * times.backward_input, weights * times.backward_weight};
  const double forward = spec.fused_cross_entropy ? 18 : 38;
  const double backward = spec.fused_cross_entropy ? 6 : 14;
  times += {memory_time(gpu, forward * tokens * vocabulary), memory_time(gpu, backward * tokens * vocabulary),
            Seconds(0)};
  times += overhead(gpu);
  if (spec.logits_at_once == 0) return times;
  return {times.forward + times.backward_input + times.backward_weight, Seconds(0), Seconds(0)};
}

PassTimes embedding(const Processor& gpu, const TransformerSpec& spec, const Workload& work) {
  const double elements = static_cast<double>(work.tokens) * spec.hidden;
  return {memory_time(gpu, 2 * kElementBytes * elements), Seconds(0),
          memory_time(gpu, (kElementBytes + kAccumulateBytes) * elements)};
}

}  // namespace dflop
