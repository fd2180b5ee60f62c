#include "core/iteration/iteration.hpp"

#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "tests/core/fixtures.hpp"

namespace dflop {
namespace batch_order_test {

/// One second per layer and LLM or encoder token, twice that backward; one byte kept per token; 10 bytes of
/// state per layer; messages take 7 s.
class TokenCosts final : public SumCostModel {
 public:
  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    const auto tokens =
        static_cast<double>(stage.encoder_layers * work.encoder.tokens + stage.llm_layers * work.llm.tokens);
    return Seconds((op == Op::backward ? 2 : 1) * tokens);
  }
  Seconds message(const Message&, const Program&) const override { return Seconds(7); }
  Seconds all_reduce(const Collective&, const Program&) const override { return Seconds(0); }
  Seconds optimizer_step(const Stage&) const override { return Seconds(0); }
  ModelState model_state(const Stage& stage) const override {
    return {Bytes{10 * (stage.encoder_layers + stage.llm_layers)}, {}, {}};
  }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return Bytes{stage.encoder_layers > 0 ? work.encoder.tokens : work.llm.tokens};
  }
  Bytes workspace(Op, const Stage&, const Work&) const override { return Bytes{5}; }
};

Sample sample_of(std::int64_t encoder_tokens, std::int64_t llm_tokens) {
  return {"s", Modality::image, {{1, encoder_tokens, 1}}, 1, llm_tokens};
}

OrderTables tables_of(const Plan& plan, const Batch& batch, const Assignment& assignment, Bytes memory) {
  const Program program = lower(plan, testing::tiny_model(), batch, assignment);
  return order_tables(plan, program, TokenCosts().price(program), memory);
}

// One encoder stage of 4 layers, and LLM stages of 2 and 4 layers with dp 2. On the two dp ranks microbatch 0
// has 10 and 30 LLM tokens and microbatch 1 has 20 and 20; encoder tokens are 3 + 5 and 1 + 1.
TEST(OrderTables, AverageOverDpRanks) {
  Plan plan = testing::disaggregated_plan({1, 1, 1, {4}}, {1, 2, 2, {2, 4}}, 2, 4);
  plan.order = OrderKind::eager_1f1b;
  const Batch batch = {sample_of(3, 10), sample_of(5, 30), sample_of(1, 20), sample_of(1, 20)};
  const OrderTables tables = tables_of(plan, batch, {2, 2, {0, 1, 2, 3}}, Bytes{125});
  const auto seconds = [](std::vector<int> values) {
    std::vector<Nanoseconds> times;
    for (const int value : values) times.push_back(std::chrono::seconds(value));
    return times;
  };
  EXPECT_EQ(tables.times.forward, seconds({4 * 8, 4 * 2, 2 * 20, 2 * 20, 4 * 20, 4 * 20}));
  EXPECT_EQ(tables.times.backward, seconds({64, 16, 80, 80, 160, 160}));
  EXPECT_EQ(tables.times.message, seconds({7, 7, 7, 7, 0, 0}));
  // Rank 2 needs the most memory, 95 bytes: 40 + 5, and on dp rank 1 30 + 20 tokens for both microbatches.
  // Rank 1 has half the layers; rank 0 has 8 + 2 tokens.
  EXPECT_EQ(tables.most_held, (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(tables_of(plan, batch, {2, 2, {0, 1, 2, 3}}, Bytes{95}).most_held, (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(tables_of(plan, batch, {2, 2, {0, 1, 2, 3}}, Bytes{94}).most_held, (std::vector<int>{2, 2, 1}));
  EXPECT_EQ(tables_of(plan, batch, {2, 2, {0, 1, 2, 3}}, Bytes{10}).most_held, (std::vector<int>{1, 1, 1}));
}

// LLM stages of 3 layers (30 bytes of state, 5 of workspace) and microbatches of 40, 1, 1, 1, 40 tokens. One
// microbatch has at most 40 tokens, two consecutive ones 41, four 43, five 83: the largest counts once, not
// once per held microbatch. The encoder's rank has 40 + 5 and one token per microbatch.
TEST(OrderTables, CountMicrobatchesAsTheyFollowEachOther) {
  Plan plan = testing::disaggregated_plan({1, 1, 1, {4}}, {1, 2, 1, {3, 3}}, 5, 5);
  plan.order = OrderKind::eager_1f1b;
  Batch batch;
  for (const int tokens : {40, 1, 1, 1, 40}) batch.push_back(sample_of(1, tokens));
  const auto held = [&](int memory) {
    return tables_of(plan, batch, {5, 1, {0, 1, 2, 3, 4}}, Bytes{memory}).most_held;
  };
  EXPECT_EQ(held(35 + 40), (std::vector<int>{5, 1, 1}));
  EXPECT_EQ(held(35 + 41), (std::vector<int>{5, 2, 2}));
  EXPECT_EQ(held(35 + 82), (std::vector<int>{5, 4, 4}));
  EXPECT_EQ(held(35 + 83), (std::vector<int>{5, 5, 5}));
}

// 2 groups with the whole encoder (40 bytes) and LLM stages of 2 and 4 layers (20 and 40 bytes). 6
// microbatches of 4 encoder and 10 LLM tokens. Rank 0: 105 - 60 - 5 = 40, of which 1F1B takes 2 x 10: 20 / 4
// = 5 encoder microbatches. Rank 1: 105 - 80 - 5 - 10 = 10: 2.
TEST(OrderTables, GiveTheEncoderInBubblesTheIdleTimeOfTheLlm) {
  Plan plan;
  plan.layout = Layout::colocated;
  plan.order = OrderKind::encoder_in_bubbles;
  plan.encoder = {1, 1, 2, {4}};
  plan.llm = {1, 2, 1, {2, 4}};
  plan.microbatches = 6;
  plan.gbs = 6;
  const Batch batch(6, sample_of(4, 10));
  EXPECT_EQ(tables_of(plan, batch, {6, 1, {0, 1, 2, 3, 4, 5}}, Bytes{105}).most_held,
            (std::vector<int>{5, 2}));
}

// zb-v depends on the durations in its batch; interleaved does not.
TEST(OrderForBatch, IsTheSameForTheSameBatchAndFollowsItsDurations) {
  Plan plan = testing::disaggregated_plan({1, 1, 1, {4}}, {1, 2, 1, {1, 1, 1, 3}}, 6, 6);
  plan.order = OrderKind::zb_v;
  plan.chunks = 2;
  Random random(4);
  const Batch batch = testing::random_batch(random, 6);
  const Assignment assignment{6, 1, {0, 1, 2, 3, 4, 5}};
  ClusterSpec cluster = testing::tiny_cluster();
  const auto order = [&] {
    return order_for_batch(plan, testing::tiny_model(), TokenCosts(), batch, assignment,
                           cluster.gpu.usable_memory())
        .ranks;
  };
  EXPECT_EQ(order(), order());
  EXPECT_NE(order(), plan_order(plan).ranks);
  plan.order = OrderKind::interleaved;
  EXPECT_EQ(order(), plan_order(plan).ranks);
}

TEST(Price, StateOfAGroupSumsAllItsStages) {
  Plan plan = testing::disaggregated_plan({1, 1, 1, {4}}, {1, 2, 1, {1, 2, 1, 2}}, 2, 2);
  plan.order = OrderKind::interleaved;
  plan.chunks = 2;
  const Batch batch(2, sample_of(4, 10));
  const Program program = lower(plan, testing::tiny_model(), batch, {2, 1, {0, 1}});
  const ProgramCosts costs = TokenCosts().price(program);
  ASSERT_EQ(costs.model_state.size(), 3u);
  EXPECT_EQ(costs.model_state[0].total(), Bytes{40});
  EXPECT_EQ(costs.model_state[1].total(), Bytes{10 + 10});
  EXPECT_EQ(costs.model_state[2].total(), Bytes{20 + 20});
}

}  // namespace batch_order_test
}  // namespace dflop
