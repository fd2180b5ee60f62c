#include "costmodel/analytic/roofline.hpp"

#include <gtest/gtest.h>

#include "core/support/random.hpp"
#include "costmodel/analytic/flops.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace roofline_test {

using fixtures::a100_cluster;
using fixtures::llama3_8b;
using fixtures::siglip_so400m;
using fixtures::small_cluster;

constexpr double kUnbounded = 1e30;

TEST(Roofline, ProductBoundByArithmetic) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.memory_bandwidth_bytes_per_s = kUnbounded;
  // 2 * 10 * 32 * 64 = 40960 FLOP at 1000 * 0.5. The rate halves at 10 tokens and again at width 32: 4 *
  // 81.92 s.
  const PassTimes times = matrix_product(cluster, 10, 32, 64);
  EXPECT_DOUBLE_EQ(times.forward.count(), 327.68);
  EXPECT_DOUBLE_EQ(times.backward_input.count(), 327.68);
  EXPECT_DOUBLE_EQ(times.backward_weight.count(), 327.68);
}

TEST(Roofline, ProductBoundByTraffic) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.peak_flop_per_s = kUnbounded;
  // X 10 * 32, W 32 * 64, Y 10 * 64 elements: 2 * (320 + 2048 + 640) = 6016 bytes at 50 bytes/s.
  // Weight gradient: 2 * (320 + 640) + 8 * 2048 = 18304 bytes.
  const PassTimes times = matrix_product(cluster, 10, 32, 64);
  EXPECT_DOUBLE_EQ(times.forward.count(), 120.32);
  EXPECT_DOUBLE_EQ(times.backward_input.count(), 120.32);
  EXPECT_DOUBLE_EQ(times.backward_weight.count(), 366.08);
}

TEST(Roofline, AttentionBoundByArithmetic) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.memory_bandwidth_bytes_per_s = kUnbounded;
  // 2 heads of 16 padded to 32. One sequence of 4: 4 * 2 * 32 * 16 pairs = 4096 FLOP, halved by causality:
  // 2048. At length 4 = attention_half_tokens the rate halves; at width 32 = gemm_half_width it halves again.
  // Forward 4 * 2048 / 500 = 16.384 s. Backward 2.5 * 4 * 2048 / 250 = 81.92 s.
  const TransformerSpec spec{"t", 1, 32, 32, 2, 2, 16, false, true, 0};
  const PassTimes times = attention_core(cluster, spec, {1, 4, 16}, 1);
  EXPECT_DOUBLE_EQ(times.forward.count(), 16.384);
  EXPECT_DOUBLE_EQ(times.backward_input.count(), 81.92);
  EXPECT_EQ(times.backward_weight.count(), 0);
}

TEST(Roofline, AttentionBoundByTraffic) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.peak_flop_per_s = kUnbounded;
  // Q, O: 32 wide; K, V: 16 wide. 4 tokens * 2 bytes * 96 = 768 bytes at 50 bytes/s; twice that backward.
  const TransformerSpec spec{"t", 1, 32, 32, 2, 1, 16, false, true, 0};
  const PassTimes times = attention_core(cluster, spec, {1, 4, 16}, 1);
  EXPECT_DOUBLE_EQ(times.forward.count(), 15.36);
  EXPECT_DOUBLE_EQ(times.backward_input.count(), 30.72);
}

// Returns a layer's total traffic in seconds: one byte per second and unlimited arithmetic.
PassTimes traffic_of_layer(const TransformerSpec& spec, const Workload& work, int tp,
                           bool sequence_parallel) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.peak_flop_per_s = kUnbounded;
  cluster.gpu.memory_bandwidth_bytes_per_s = 2;
  cluster.software.kernel_overhead = Seconds(0);
  return transformer_layer(cluster, spec, work, tp, sequence_parallel);
}

TEST(Roofline, LayerTrafficByHand) {
  // h = 8, q = 8, k = 4, f = 12 gated; one token, so each product moves 2 * (inputs + outputs + weights)
  // bytes: QKV 8 -> 16: 2 * (24 + 128) = 304; output 8 -> 8: 2 * (16 + 64) = 160; up 8 -> 24: 2 * (32 + 192)
  // = 448; down 12 -> 8: 2 * (20 + 96) = 232. Sum 1144. Attention: 2 * 2 * 12 = 48. Streams: 2 * (10*8 + 2*12
  // + 3*12) = 280; backward 2 * (12*8 + 2*12 + 5*12) = 360. Weight gradients: activations 2 * (24 + 16 + 32 +
  // 20) = 184, weights 8 * 480 = 3840.
  const PassTimes times = traffic_of_layer(fixtures::small_model().llm, {1, 1, 1}, 1, true);
  EXPECT_DOUBLE_EQ(times.forward.count(), 1144 + 48 + 280);
  EXPECT_DOUBLE_EQ(times.backward_input.count(), 1144 + 96 + 360);
  EXPECT_DOUBLE_EQ(times.backward_weight.count(), 184 + 3840);
}

TEST(Roofline, SequenceParallelismSplitsNormsAndResiduals) {
  // The terms 10 h and 12 h with h = 8 in bf16: half of 160 and of 192 bytes on each of 2 ranks.
  const TransformerSpec llm = fixtures::small_model().llm;
  const PassTimes whole = traffic_of_layer(llm, {1, 1, 1}, 2, false);
  const PassTimes split = traffic_of_layer(llm, {1, 1, 1}, 2, true);
  EXPECT_DOUBLE_EQ((whole.forward - split.forward).count(), 80);
  EXPECT_DOUBLE_EQ((whole.backward_input - split.backward_input).count(), 96);
  EXPECT_DOUBLE_EQ((whole.backward_weight - split.backward_weight).count(), 0);
}

TEST(Roofline, OverheadOncePerPass) {
  ClusterSpec without = a100_cluster();
  without.software.kernel_overhead = Seconds(0);
  const Workload work{1, 100, 10000};
  const PassTimes a = transformer_layer(a100_cluster(), llama3_8b(), work, 1, true);
  const PassTimes b = transformer_layer(without, llama3_8b(), work, 1, true);
  EXPECT_NEAR((a.forward - b.forward).count(), 20e-6, 1e-15);
  EXPECT_NEAR((a.backward_input - b.backward_input).count(), 20e-6, 1e-15);
  EXPECT_EQ(a.backward_weight, b.backward_weight);
}

TEST(Roofline, ConnectorByHand) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.peak_flop_per_s = kUnbounded;
  cluster.gpu.memory_bandwidth_bytes_per_s = 2;
  // 2 encoder tokens merge to one; widths 8 -> 8 -> 8 on 2 ranks: 8 -> 4, then 4 -> 8. Each product moves 2 *
  // (12 + 32) = 88 bytes; the activation function between them, 4 wide, 2 * 2 * 4 = 16. Overhead 1 s.
  // Weight gradients: 2 * (2 * 12 + 8 * 32) = 560. Backward of the activation function: 24.
  const PassTimes times = connector(cluster, fixtures::small_model(), {1, 2, 4}, 2);
  EXPECT_DOUBLE_EQ(times.forward.count(), 88 + 88 + 16 + 1);
  EXPECT_DOUBLE_EQ(times.backward_input.count(), 88 + 88 + 24 + 1);
  EXPECT_DOUBLE_EQ(times.backward_weight.count(), 560);
}

TEST(Roofline, HeadAndEmbeddingByHand) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.peak_flop_per_s = kUnbounded;
  cluster.gpu.memory_bandwidth_bytes_per_s = 2;
  const TransformerSpec llm = fixtures::small_model().llm;
  // Product 8 -> 5 of one token on each of 2 ranks: 2 * (13 + 40) = 106. Loss 18 * 5 = 90, backward 6 * 5
  // = 30.
  const PassTimes head = vocabulary_head(cluster, llm, {1, 1, 1}, 2);
  EXPECT_DOUBLE_EQ(head.forward.count(), 106 + 90 + 1);
  EXPECT_DOUBLE_EQ(head.backward_input.count(), 106 + 30 + 1);
  EXPECT_DOUBLE_EQ(head.backward_weight.count(), 2 * 13 + 8 * 40);
  // In chunks, the forward does all of it.
  TransformerSpec chunked = llm;
  chunked.logits_at_once = 5;
  const PassTimes together = vocabulary_head(cluster, chunked, {1, 1, 1}, 2);
  EXPECT_DOUBLE_EQ(together.forward.count(), 106 + 90 + 1 + 106 + 30 + 1 + 2 * 13 + 8 * 40);
  EXPECT_EQ(together.backward_input.count(), 0);
  EXPECT_EQ(together.backward_weight.count(), 0);
  // Three chunks of one row: three products read the weights; the streams cover three rows.
  const PassTimes three = vocabulary_head(cluster, chunked, {1, 3, 9}, 2);
  EXPECT_DOUBLE_EQ(three.forward.count(), 3 * (106 + 90 + 106 + 30 + 2 * 13 + 8 * 40) + 2);
  // A row of 8: read and written in bf16, 32 bytes; backward 8 * (2 + 8) = 80.
  const PassTimes lookup = embedding(cluster, llm, {1, 1, 1});
  EXPECT_DOUBLE_EQ(lookup.forward.count(), 32);
  EXPECT_EQ(lookup.backward_input.count(), 0);
  EXPECT_DOUBLE_EQ(lookup.backward_weight.count(), 80);
}

TEST(Roofline, MoreWorkNeverTakesLess) {
  Random random(3);
  for (const TransformerSpec& spec : {llama3_8b(), siglip_so400m()}) {
    for (int i = 0; i < 2000; ++i) {
      const auto tokens = static_cast<std::int64_t>(1 + random.below(1 << 14));
      const auto pairs =
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(tokens * tokens) + 1));
      const int tp = 1 << random.below(4);
      const PassTimes base = transformer_layer(a100_cluster(), spec, {1, tokens, pairs}, tp, true);
      for (const Workload& more : {Workload{1, tokens + 1, pairs}, Workload{1, tokens, pairs + 100}}) {
        const PassTimes times = transformer_layer(a100_cluster(), spec, more, tp, true);
        EXPECT_GE(times.forward, base.forward);
        EXPECT_GE(times.backward_input, base.backward_input);
        EXPECT_GE(times.backward_weight, base.backward_weight);
      }
    }
  }
}

TEST(Roofline, NeverFasterThanThePeakAndNeverFasterPerFlopAfterASplit) {
  Random random(4);
  for (int i = 0; i < 2000; ++i) {
    const auto tokens = static_cast<std::int64_t>(1 + random.below(1 << 16));
    const Workload work{1, tokens, tokens * tokens};
    double previous = 0;
    for (const int tp : {1, 2, 4, 8}) {
      const PassTimes times = transformer_layer(a100_cluster(), llama3_8b(), work, tp, true);
      const double forward = layer_forward_flop(llama3_8b(), work, tp).count;
      const Seconds backward = times.backward_input + times.backward_weight;
      EXPECT_LT(forward / times.forward.count(), a100_cluster().gpu.peak_flop_per_s);
      EXPECT_LT(2 * forward / backward.count(), a100_cluster().gpu.peak_flop_per_s);
      EXPECT_GE(times.forward.count() / forward, previous);
      previous = times.forward.count() / forward;
    }
  }
}

TEST(Roofline, AttentionWithoutFlashMovesItsMatrix) {
  // 13 pairs, 4 heads: 52 values; one byte of each at 100 * 0.5 bytes/s: 1.04 s. A product has 2 * 2 * 52 =
  // 208 FLOP, at 1000 * 0.5 FLOP/s 0.416 s, less than the 2.08 s for its 2 bytes per value.
  //   forward  2 * 2.08 + 4 * 1.04 = 8.32, plus 5 * 1.04 with dropout
  //   backward 4 * 2.08 + 6 * 1.04 = 14.56, plus the same with dropout
  TransformerSpec spec = fixtures::small_model().llm;
  spec.attention = AttentionKernel::fused_softmax;
  const PassTimes plain = attention_core(fixtures::small_cluster(), spec, {2, 5, 13}, 1);
  EXPECT_DOUBLE_EQ(plain.forward.count(), 8.32);
  EXPECT_DOUBLE_EQ(plain.backward_input.count(), 14.56);
  spec.dropout = true;
  const PassTimes dropped = attention_core(fixtures::small_cluster(), spec, {2, 5, 13}, 1);
  EXPECT_DOUBLE_EQ(dropped.forward.count(), 8.32 + 5.2);
  EXPECT_DOUBLE_EQ(dropped.backward_input.count(), 14.56 + 5.2);
}

}  // namespace roofline_test
}  // namespace dflop
