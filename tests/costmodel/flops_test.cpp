#include "costmodel/analytic/flops.hpp"

#include <gtest/gtest.h>

#include "core/support/random.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace flops_test {

using fixtures::llama3_8b;
using fixtures::small_model;

TEST(Flops, DecoderLayerForwardByHand) {
  // Linear: 2 * 480 parameters * 5 tokens = 4800. Attention: 4 * 4 heads * 2 * 13 pairs / 2 (causal) = 208.
  EXPECT_EQ(layer_forward_flop(small_model().llm, {2, 5, 13}).count, 5008);
}

TEST(Flops, EncoderLayerForwardByHand) {
  // Linear: 2 * 192 * 6 = 2304. Attention, not causal: 4 * 2 heads * 2 * 18 = 288.
  EXPECT_EQ(layer_forward_flop(small_model().encoder, {2, 6, 18}).count, 2592);
}

TEST(Flops, BackwardIsTwiceTheForward) {
  // Forward: 3 layers * 5008 + 800 = 15824, without encoder work. Forward and backward: 3 * 15824.
  const Workload llm{2, 5, 13};
  const Flop forward = llm_flop(small_model(), llm);
  EXPECT_EQ(model_flop(small_model(), {}, llm).count - forward.count, 2 * 15824);
}

TEST(Flops, LayerIsItsLinearPartAndItsAttention) {
  // Selective recomputation repeats only the attention, full recomputation both parts: 4800 + 208.
  const TransformerSpec llm = small_model().llm;
  EXPECT_EQ(attention_flop(llm, {2, 5, 13}).count, 208);
  EXPECT_EQ(layer_forward_flop(llm, {2, 5, 13}).count, linear_flop(480, 5).count + 208);
}

TEST(Flops, ConnectorSeesMergedTokensAndHeadSeesAll) {
  // 6 encoder tokens become 3: 2 * 128 * 3 = 768. Head: 2 * 8 * 10 * 5 = 800.
  EXPECT_EQ(connector_flop(small_model(), {2, 6, 18}).count, 768);
  EXPECT_EQ(head_flop(small_model().llm, {2, 5, 13}).count, 800);
}

TEST(Flops, ModelIsThreeForwardsOfAllParts) {
  // Encoder: 2 layers * 2592 + 768 = 5952. LLM: 3 layers * 5008 + 800 = 15824. Together, times 3: 65328.
  const Workload encoder{2, 6, 18};
  const Workload llm{2, 5, 13};
  EXPECT_EQ(encoder_flop(small_model(), encoder).count, 5952);
  EXPECT_EQ(llm_flop(small_model(), llm).count, 15824);
  EXPECT_EQ(model_flop(small_model(), encoder, llm).count, 65328);
}

TEST(Flops, Llama3PerTokenIsSixTimesItsMatrixParameters) {
  // Published total 8,030,261,248, less the embedding 128256 * 4096 = 525,336,576 and 65 norms * 4096 =
  // 266,240: 7,504,658,432 matrix parameters, 6 FLOP each for one token without attention.
  ModelSpec model = fixtures::llava_llama3_8b();
  EXPECT_EQ(model_flop(model, {}, {1, 1, 0}).count, 6.0 * 7'504'658'432);
}

TEST(Flops, PaddedHeadsArePaidFor) {
  // 25 heads on 2 ranks: 13 each. 4 * 13 * 128 * 100 pairs.
  const TransformerSpec internvit{"internvit-6b", 45, 3200, 12800, 25, 25, 128, false, false, 0};
  EXPECT_EQ(attention_flop(internvit, {1, 10, 100}, 2).count, 4.0 * 13 * 128 * 100);
}

TEST(Flops, TensorParallelismDividesWhatItDividesEvenly) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto tokens = static_cast<std::int64_t>(1 + random.below(1 << 15));
    const Workload work{1, tokens, tokens * tokens};
    const double whole = layer_forward_flop(llama3_8b(), work).count;
    for (const int tp : {2, 4, 8}) {
      EXPECT_DOUBLE_EQ(layer_forward_flop(llama3_8b(), work, tp).count * tp, whole);
      EXPECT_DOUBLE_EQ(head_flop(llama3_8b(), work, tp).count * tp, head_flop(llama3_8b(), work).count);
    }
  }
}

TEST(Flops, FlopOfSumIsSumOfFlop) {
  Random random(2);
  const ModelSpec model = fixtures::llava_llama3_8b();
  const auto workload = [&random] {
    const auto tokens = static_cast<std::int64_t>(random.below(4096));
    return Workload{1, tokens, tokens * tokens};
  };
  for (int i = 0; i < 1000; ++i) {
    const Workload a = workload();
    const Workload b = workload();
    EXPECT_DOUBLE_EQ(model_flop(model, a + b, b + a).count,
                     (model_flop(model, a, b) + model_flop(model, b, a)).count);
  }
}

}  // namespace flops_test
}  // namespace dflop
