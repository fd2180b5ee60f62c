#include "solver/planners/published/profile.hpp"

#include <gtest/gtest.h>

#include "tests/solver/search_fixtures.hpp"

namespace dflop {
namespace published_profile_test {

/// An LLM of hidden size 4 with 4 heads, one of which has keys and values, a gated MLP of width 8 and 10
/// vocabulary entries.
TransformerSpec small_llm() {
  TransformerSpec llm;
  llm.layers = 2;
  llm.hidden = 4;
  llm.ffn = 8;
  llm.heads = 4;
  llm.kv_heads = 1;
  llm.head_dim = 1;
  llm.gated_mlp = true;
  llm.causal = true;
  llm.vocabulary = 10;
  return llm;
}

/// A model that the released code does not plan: an encoder of 6 layers, hidden size 2 and MLP width 6, and a
/// connector of one layer from 2 to 4 wide over pairs of tokens.
ModelSpec other_model() {
  ModelSpec model;
  model.preprocess = "qwen2.5-vl";
  model.encoder.layers = 6;
  model.encoder.hidden = 2;
  model.encoder.ffn = 6;
  model.connector = {{2, 4}, 2};
  model.llm = small_llm();
  return model;
}

// Three tokens. Forward of a layer: Q, output, and K and V with heads / kv_heads = 4 in place of the one KV
// head: 2 x 3 x 4² x (1 + 1 + 2 x 4 / 4) = 384; MLP 2 x 3 x 4 x 3 x 8 = 576; attention, halved by the causal
// mask, 4 x 3² x 4 / 2 = 72. Head 2 x 3 x 4 x 10 = 240. A pass is 4 forwards.
TEST(PublishedProfile, CountsFlopOfTheLlmAsTheReleasedCode) {
  EXPECT_DOUBLE_EQ(attention_tflop(small_llm(), 3, 2), 4 * 2 * 72 / 1e12);
  EXPECT_DOUBLE_EQ(llm_tflop(small_llm(), 3, 2), 4 * (2 * (384 + 576 + 72) + 240) / 1e12);
}

// A tile of LLaVA-OneVision has 384 x 384 pixels and 27 x 27 = 729 tokens. Encoder of hidden size 2 and MLP
// width 6, LLM of hidden size 4. Forward: a layer takes 8 x 2² x 729 + 4 x 729² x 2 + 4 x 729 x 2 x 6, the
// patches 2 x 2 x 3 x 384², the connector 2 x 729 x 2 x 4 + 2 x 729 x 4². The connector counts 4/3 times
// more.
TEST(PublishedProfile, CountsFlopOfTheEncoderAsTheReleasedCode) {
  ModelSpec model;
  model.preprocess = "llava-ov";
  model.encoder.hidden = 2;
  model.encoder.ffn = 6;
  model.llm.hidden = 4;
  const double layer = 8.0 * 4 * 729 + 4.0 * 729 * 729 * 2 + 4.0 * 729 * 12;
  const double patches = 2.0 * 2 * 3 * 384 * 384;
  const double connector = 2.0 * 729 * 8 + 2.0 * 729 * 16;
  // The length of the data's tiles does not count: the released code knows only its own.
  EXPECT_DOUBLE_EQ(encoder_tflop(model, 99, 5, 3), 4 * 5 * (3 * layer + patches + connector * 4 / 3) / 1e12);
  // A tile of InternVL has 448 x 448 pixels and 32 x 32 tokens, which are not joined before the connector.
  model.preprocess = "internvl2.5";
  const double longer = 8.0 * 4 * 1024 + 4.0 * 1024 * 1024 * 2 + 4.0 * 1024 * 12;
  EXPECT_DOUBLE_EQ(
      encoder_tflop(model, 99, 1, 1),
      4 * (longer + 2.0 * 2 * 3 * 448 * 448 + (2.0 * 1024 * 8 + 2.0 * 1024 * 16) * 4 / 3) / 1e12);
}

// Other models have tiles of the data's length and their own connector. An encoder layer over 10 tokens: 8 x
// 4 x 10 + 4 x 100 x 2 + 4 x 10 x 12 = 1600; the connector: 2 x 2 x 4 x 10 / 2 = 80.
TEST(PublishedProfile, CountsTilesOfTheDataForOtherModels) {
  EXPECT_DOUBLE_EQ(encoder_tflop(other_model(), 10, 1, 1), 4 * (1600 + 80 * 4.0 / 3) / 1e12);
}

/// One tp, and data of two samples.
PublishedTables tables_of(const ModelSpec& model) {
  PublishedTables tables;
  tables.tile_tokens = 10;
  tables.tiles = {1, 3};
  tables.tokens = {2, 4};
  const double encoder = encoder_tflop(model, 10, 1, 1);
  tables.encoder_times = {{1, 1, 1, 1000 * encoder / 30.004}, {1, 1, 2, 2000 * encoder / 50.006}};
  tables.encoder_memory = {{1, 4, 2, 3, 10, 8}, {1, 8, 2, 5, 18, 14}};
  tables.llm_memory = {{1, 3, 4, 2, 1, 1}, {1, 4, 4, 3, 2, 2}};
  tables.llm_times = {{1, 4, 2, 3.014}, {1, 4, 4, 5.004}};
  tables.llm_times_without_attention = {{1, 4, 2, 1.999}, {1, 4, 4, 3.001}};
  return tables;
}

// The encoder's throughput is rounded to 30.00 and 50.01 TFLOP/s. Its state is 18 GiB at 8 layers and 10 at
// 4: 2 + 2 for each layer. Activations of 2 tiles take 5 and 3 GiB: 1 + 0.5 for each layer, half of it for
// each tile. The data has 2 tiles in the mean and at most 3.
TEST(PublishedProfile, ReadsTheEncoderTables) {
  const ModelSpec model = other_model();
  const ModuleTables encoder = published_profile(tables_of(model), model).encoder;
  EXPECT_EQ(encoder.layers, 6);
  EXPECT_DOUBLE_EQ(encoder.mean_units, 2);
  EXPECT_DOUBLE_EQ(encoder.most_units, 3);
  EXPECT_DOUBLE_EQ(encoder.mean_tflop, encoder_tflop(model, 10, 2, 6));
  ASSERT_EQ(encoder.profiles.size(), 1U);
  const ModuleProfile& profile = encoder.profiles.front();
  EXPECT_DOUBLE_EQ(profile.throughput.held(1), 30.00);
  EXPECT_DOUBLE_EQ(profile.throughput.held(2), 50.01);
  EXPECT_DOUBLE_EQ(profile.state(8), 18 * kGib);
  EXPECT_DOUBLE_EQ(profile.state(10), 22 * kGib);
  EXPECT_DOUBLE_EQ(profile.activation(6), (1 + 0.5 * 6) / 2 * kGib);
}

// The LLM's attention takes 1.02 (of 1.015) and 2.00 (of 2.003) ms, its linear layers 2.00 and 3.00 ms. The
// throughput at 2 tokens is a weighted mean of two figures: the throughput of the linear layers at 2 tokens,
// and the mean throughput of attention at 2 and at 4 tokens. The weights are the fractions of the data's
// FLOP.
TEST(PublishedProfile, CombinesTheThroughputOfTheLlm) {
  ModelSpec model = other_model();
  model.llm.hidden = 20'000'000;  // so that throughput has digits to keep
  const auto rounded = [](double value) { return std::round(100 * value) / 100; };
  const auto attention = [&](double tokens, double ms) {
    return rounded(1000 * attention_tflop(model.llm, tokens, 4) / ms);
  };
  const auto linear = [&](double tokens, double ms) {
    return rounded(1000 * (llm_tflop(model.llm, tokens, 4) - attention_tflop(model.llm, tokens, 4)) / ms);
  };
  const double all = llm_tflop(model.llm, 2, 2) + llm_tflop(model.llm, 4, 2);
  const double share = (attention_tflop(model.llm, 2, 2) + attention_tflop(model.llm, 4, 2)) / all;
  const double of_attention = (attention(2, 1.02) + attention(4, 2.00)) / 2;
  const ModuleTables llm = published_profile(tables_of(model), model).llm;
  ASSERT_EQ(llm.profiles.size(), 1U);
  const Curve& curve = llm.profiles.front().throughput;
  EXPECT_NEAR(curve.held(2), (1 - share) * linear(2, 2.00) + share * of_attention, 1e-9);
  EXPECT_NEAR(curve.held(4), (1 - share) * linear(4, 3.00) + share * of_attention, 1e-9);
  EXPECT_DOUBLE_EQ(llm.mean_tflop, all / 2);
}

// A throughput of 0.0004 TFLOP/s is not rounded to zero.
TEST(PublishedProfile, KeepsThroughputThatWouldRoundToZero) {
  const ModelSpec model = other_model();
  PublishedTables tables = tables_of(model);
  tables.encoder_times[0].milliseconds = 1000 * encoder_tflop(model, 10, 1, 1) / 0.0004;
  const ModuleTables encoder = published_profile(tables, model).encoder;
  EXPECT_DOUBLE_EQ(encoder.profiles.front().throughput.held(1), 0.0004);
}

/// A forward needs `passing_bytes` a token while it runs, on top of 9 bytes that are held at all times. What
/// a microbatch keeps is 100 bytes a token.
class MemoryCosts : public testing::LinearCostModel {
 public:
  explicit MemoryCosts(std::int64_t passing) : passing_bytes(passing) { token_bytes = 100; }
  Bytes workspace(Op, const Stage&, const Work& work) const override {
    return {9 + passing_bytes * (work.encoder.tokens + work.llm.tokens)};
  }
  std::int64_t passing_bytes;
};

/// Returns the tables for one sample of two tiles of 10 tokens, on one GPU, with 1,000 vocabulary entries.
PublishedTables predicted(std::int64_t passing_bytes) {
  const MemoryCosts cost(passing_bytes);
  ModelSpec model = testing::small_model(8, 4);
  model.llm.vocabulary = 1000;
  const ClusterSpec cluster = testing::small_cluster(1, 1, std::int64_t{1} << 30);
  const std::vector<Sample> samples = {testing::small_sample(2, 30)};
  const SimExecutor executor;
  return published_tables({{model, cluster, cost}, executor, 1, samples, {}, 1, {}, {}});
}

// Two tiles keep 100 bytes a token, and a forward passes 7 more.
TEST(PublishedTables, ForwardPeakOfTheEncoderHasTheWorkspaceOfAForward) {
  const PublishedTables tables = predicted(7);
  ASSERT_EQ(tables.encoder_memory.size(), 2U);
  EXPECT_DOUBLE_EQ(tables.encoder_memory[0].forward_peak * kGib,
                   static_cast<double>(2 * tables.tile_tokens * 107));
  EXPECT_EQ(tables.encoder_times.size(), 7U);
  EXPECT_EQ(tables.tiles, std::vector<double>{2});
  EXPECT_EQ(tables.tokens, std::vector<double>{30});
}

// 1,024 tokens at hidden size 8: the layers keep 100 bytes a token, the inputs of the head's norm and product
// take 2 x 2 x 8, and the loss takes 4 bytes for each of 1,000 entries. If the forward of a layer passes
// more, it is the peak.
TEST(PublishedTables, ForwardPeakOfTheLlmHasTheLoss) {
  EXPECT_DOUBLE_EQ(predicted(7).llm_memory[0].forward_peak * kGib, 1024 * (100 + 32 + 4000));
  EXPECT_DOUBLE_EQ(predicted(5000).llm_memory[0].forward_peak * kGib, 1024 * (100 + 5000));
}

}  // namespace published_profile_test
}  // namespace dflop
