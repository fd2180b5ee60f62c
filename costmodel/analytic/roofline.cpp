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

/// Returns (x + half) / x: how much longer a kernel takes than in the limit of large x.
double slowdown(double x, double half) {
  return 1 + half / x;
}

/// Widths are those of one rank.
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

PassTimes layer_streams(const Processor& gpu, const TransformerSpec& spec, const Widths& w, double tokens,
                        double hidden_split) {
  const double hidden = w.hidden / hidden_split;
  const double rotary = 2 * (w.query + w.kv);
  const double forward = 10 * hidden + rotary + (spec.gated_mlp ? 3 : 2) * w.ffn;
  const double backward = 12 * hidden + rotary + (spec.gated_mlp ? 5 : 3) * w.ffn;
  return {memory_time(gpu, kElementBytes * tokens * forward),
          memory_time(gpu, kElementBytes * tokens * backward), Seconds(0)};
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

/// Times attention whose matrix goes through memory; see attention_core in the header.
PassTimes materialised_attention(const Processor& gpu, const TransformerSpec& spec, const Workload& work,
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
  if (spec.attention != AttentionKernel::flash) return materialised_attention(gpu, spec, work, tp);
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

PassTimes connector(const Processor& gpu, const ConnectorSpec& spec, const Workload& encoder, int tp) {
  const double tokens = connector_tokens(spec, encoder);
  PassTimes times = overhead(gpu);
  for (std::size_t i = 1; i < spec.widths.size(); ++i) {
    const bool by_column = i % 2 == 1;
    const double inputs = spec.widths[i - 1] / (by_column ? 1.0 : tp);
    const double outputs = spec.widths[i] / (by_column ? tp : 1.0);
    times += matrix_product(gpu, tokens, inputs, outputs);
    if (i + 1 == spec.widths.size()) break;
    const double elements = kElementBytes * tokens * outputs;
    times += {memory_time(gpu, 2 * elements), memory_time(gpu, 3 * elements), Seconds(0)};
  }
  return times;
}

PassTimes vocabulary_head(const Processor& gpu, const TransformerSpec& spec, const Workload& work, int tp) {
  const double tokens = static_cast<double>(work.tokens);
  const double vocabulary = static_cast<double>(spec.vocabulary_per_rank(tp));
  PassTimes times = matrix_product(gpu, tokens, spec.hidden, vocabulary);
  const double forward = spec.fused_cross_entropy ? 18 : 38;
  const double backward = spec.fused_cross_entropy ? 6 : 14;
  times += {memory_time(gpu, forward * tokens * vocabulary), memory_time(gpu, backward * tokens * vocabulary),
            Seconds(0)};
  times += overhead(gpu);
  return times;
}

PassTimes embedding(const Processor& gpu, const TransformerSpec& spec, const Workload& work) {
  const double elements = static_cast<double>(work.tokens) * spec.hidden;
  return {memory_time(gpu, 2 * kElementBytes * elements), Seconds(0),
          memory_time(gpu, (kElementBytes + kAccumulateBytes) * elements)};
}

}  // namespace dflop
