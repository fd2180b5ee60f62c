#include "core/program/lowering.hpp"
#include "core/order/pipeline_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "tests/core/fixtures.hpp"

namespace dflop {
namespace lowering_test {

using testing::disaggregated_plan;
using testing::random_assignment;
using testing::random_batch;
using testing::tiny_cluster;
using testing::tiny_model;

TEST(StageSchedule, OneFOneBWarmsUpByTheStagesBehindIt) {
  // Stage 1 of 4 has two stages after it: first forwards 0 and 1, then one forward and one backward in turn,
  // and finally the two remaining backwards.
  const std::vector<OrderStep> expected = {{Op::forward, 1, 0},  {Op::forward, 1, 1}, {Op::forward, 1, 2},
                                           {Op::backward, 1, 0}, {Op::forward, 1, 3}, {Op::backward, 1, 1},
                                           {Op::backward, 1, 2}, {Op::backward, 1, 3}};
  EXPECT_EQ(pipeline_steps({OrderKind::one_f_one_b, 4, 1, 4})[1], expected);
}

TEST(StageSchedule, WarmUpEndsWithTheMicrobatches) {
  const std::vector<OrderStep> expected = {
      {Op::forward, 0, 0}, {Op::forward, 0, 1}, {Op::backward, 0, 0}, {Op::backward, 0, 1}};
  EXPECT_EQ(pipeline_steps({OrderKind::one_f_one_b, 8, 1, 2})[0], expected);
  EXPECT_EQ(pipeline_steps({OrderKind::gpipe, 8, 1, 2})[0], expected);
}

TEST(PlanStages, FlagsSitWhereEncoderEndsAndLlmBeginsAndEnds) {
  Plan plan = disaggregated_plan({1, 2, 1, {2, 2}}, {2, 3, 1, {2, 2, 2}}, 2, 4);
  std::vector<Stage> stages = plan_stages(plan, tiny_model());
  ASSERT_EQ(stages.size(), 5u);
  EXPECT_FALSE(stages[0].connector);
  EXPECT_TRUE(stages[1].connector);
  EXPECT_TRUE(stages[2].embedding);
  EXPECT_FALSE(stages[2].head);
  EXPECT_TRUE(stages[4].head);
  EXPECT_EQ(stages[1].tp, 1);
  EXPECT_EQ(stages[4].tp, 2);

  plan.layout = Layout::uniform;  // the LLM starts in the stage in which the encoder ends
  plan.encoder = {2, 2, 1, {4, 0}};
  plan.llm = {2, 2, 1, {1, 5}};
  stages = plan_stages(plan, tiny_model());
  EXPECT_TRUE(stages[0].connector);
  EXPECT_TRUE(stages[0].embedding);
  EXPECT_FALSE(stages[0].head);
  EXPECT_TRUE(stages[1].head);
}

TEST(StageParameters, AreSumsOfMatrices) {
  const ModelSpec model = tiny_model();
  Stage stage;
  stage.encoder_layers = 2;
  stage.connector = true;
  // Encoder layer: 64 * (2*64 for Q and output + 2*64 for K and V + 2*256) = 64 * 768 = 49,152; connector
  // 64*128 + 128*128 = 24,576.
  EXPECT_EQ(stage_parameters(stage, model), 2 * 49152 + 24576);
  Stage last;
  last.llm_layers = 1;
  last.head = true;
  last.tp = 4;
  // On one of 4 ranks: 8/4 = 2 query heads of 16; 2 KV heads over 4 ranks are replicated, one on each; three
  // ffn matrices of 128; vocabulary 1000/4: 128 * (2*32 + 2*16 + 3*128) + 250*128 = 61,440 + 32,000.
  EXPECT_EQ(stage_parameters(last, model), 61440 + 32000);
}

TEST(Transformer, HeadsThatTpDoesNotDivideArePadded) {
  TransformerSpec vit{"vit", 45, 3200, 12800, 25, 25, 128, false, false, 0};
  EXPECT_EQ(vit.heads_per_rank(8), 4);  // 25 -> 32 heads over 8 ranks
  EXPECT_EQ(vit.kv_heads_per_rank(8), 4);
  TransformerSpec gqa{"gqa", 28, 3584, 18944, 28, 4, 128, true, true, 0};
  EXPECT_EQ(gqa.kv_heads_per_rank(8), 1);  // 4 KV heads over 8 ranks: each rank has a copy of one
  EXPECT_EQ(gqa.heads_per_rank(8), 4);     // 28 -> 32
}

TEST(Lower, DisaggregatedMicrobatchIsSharedOverEncoderRanksAndReshardedOnce) {
  // One microbatch, two LLM dp ranks, two encoder dp ranks. Sample 0 (LLM rank 0) has 3 tiles and 30 output
  // tokens, sample 1 (LLM rank 1) has 1 tile and 10. Four equal tiles: encoder rank 0 gets the first two,
  // rank 1 the third of sample 0 and the one of sample 1. Reshard: 0->0 20 tokens, 1->0 10 tokens, 1->1 10
  // tokens, 128 wide, 2 bytes.
  const Plan plan = disaggregated_plan({1, 1, 2, {4}}, {1, 1, 2, {6}}, 1, 2);
  const Batch batch = {{"a", Modality::image, {{3, 16, 256}}, 30, 40},
                       {"b", Modality::image, {{1, 16, 256}}, 10, 12}};
  const Program program = lower(plan, tiny_model(), batch, {1, 2, {0, 1}});
  ASSERT_EQ(program.groups.size(), 4u);
  EXPECT_EQ(program.works[0].encoder, (Workload{2, 32, 512}));
  EXPECT_EQ(program.works[1].encoder, (Workload{2, 32, 512}));
  EXPECT_EQ(program.works[2].llm, (Workload{1, 40, 1600}));
  EXPECT_EQ(program.works[3].llm, (Workload{1, 12, 144}));
  ASSERT_EQ(program.messages.size(), 6u);  // three forward, three back
  const auto check = [&](int message, int source, int destination, std::int64_t tokens,
                         std::int64_t port_tokens) {
    EXPECT_EQ(program.messages[message].source, source);
    EXPECT_EQ(program.messages[message].destination, destination);
    EXPECT_EQ(program.messages[message].bytes.count, tokens * 256);
    EXPECT_EQ(program.messages[message].port_bytes.count, port_tokens * 256);
  };
  check(0, 0, 2, 20, 30);  // LLM rank 0 gets 30 tokens in total
  check(1, 2, 0, 20, 30);
  check(2, 1, 2, 10, 30);
  check(4, 1, 3, 10, 20);  // encoder rank 1 sends 20 in total
  verify(program);
}

TEST(Lower, UniformBoundariesCarryEncoderThenConnectorThenLlmWidths) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {1, 4, 1, {2, 2, 0, 0}};
  plan.llm = {1, 4, 1, {0, 0, 3, 3}};
  plan.gbs = 1;
  const Batch batch = {{"a", Modality::image, {{3, 16, 256}}, 30, 40}};
  const Program program = lower(plan, tiny_model(), batch, {1, 1, {0}});
  // 48 encoder tokens * 64 wide, then 30 output tokens * 128 wide, then 40 LLM tokens * 128 wide; two bytes
  // each.
  ASSERT_EQ(program.messages.size(), 6u);
  EXPECT_EQ(program.messages[0].bytes.count, 48 * 64 * 2);
  EXPECT_EQ(program.messages[2].bytes.count, 30 * 128 * 2);
  EXPECT_EQ(program.messages[4].bytes.count, 40 * 128 * 2);
  verify(program);
}

TEST(Lower, RanksCountEncoderThenLlmWithTpFastest) {
  const Plan plan = disaggregated_plan({2, 2, 1, {2, 2}}, {4, 1, 2, {6}}, 1, 2);
  Random random(7);
  const Batch batch = random_batch(random, 2);
  const Program program = lower(plan, tiny_model(), batch, random_assignment(random, plan, 2));
  std::vector<std::int32_t> first_ranks;
  for (const Group& group : program.groups) first_ranks.push_back(group.first_rank);
  EXPECT_EQ(first_ranks, (std::vector<std::int32_t>{0, 2, 4, 8}));  // encoder pp 0, pp 1, then LLM dp 0, dp 1
  EXPECT_EQ(program.ranks(), 12);
}

TEST(Lower, RandomPlansVerifyAndLoseNothing) {
  Random random(11);
  const auto pick = [&](int most) { return static_cast<int>(1 + random.below(most)); };
  for (int round = 0; round < 300; ++round) {
    Plan plan =
        disaggregated_plan({pick(4), pick(3), pick(4), {}}, {pick(4), pick(4), pick(4), {}}, pick(6), 0);
    plan.encoder.layers = split_layers(4, plan.encoder.pp);
    plan.llm.layers = split_layers(6, plan.llm.pp);
    if (random.below(2) == 0) plan.order = OrderKind::gpipe;
    if (random.below(2) == 0) plan.placement = RankOrder::replica_major;
    if (random.below(2) == 0) plan.reshard = Reshard::hub;
    if (random.below(3) == 0) {
      plan.layout = Layout::uniform;
      plan.encoder = plan.llm;
      plan.encoder.layers.assign(plan.llm.pp, 0);
      plan.encoder.layers[0] = 4;
    }
    plan.gbs = plan.bins() + static_cast<int>(random.below(20));
    validate(plan, tiny_model(), tiny_cluster(1, 128));
    const Batch batch = random_batch(random, plan.gbs);
    const Program program = lower(plan, tiny_model(), batch, random_assignment(random, plan, batch.size()));
    verify(program);

    Work expected;
    std::int64_t output_tokens = 0;
    for (const Sample& sample : batch) {
      expected.encoder += sample.encoder();
      expected.llm += sample.llm();
      output_tokens += sample.encoder_output_tokens;
    }
    Work found;
    for (const Work& work : program.works) {
      found.encoder += work.encoder;
      found.llm += work.llm;
    }
    EXPECT_EQ(found, expected);
    std::int64_t reshard_bytes = 0;
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != Op::reshard_send) continue;
      const Message& message = program.messages[instruction.index];
      if (!is_gathered(message, program)) reshard_bytes += message.bytes.count;
    }
    // Every output token crosses once forward and once backward, 128 wide with 2 bytes per element.
    if (plan.layout == Layout::disaggregated) {
      EXPECT_EQ(reshard_bytes, 2 * output_tokens * 128 * 2);
    } else {
      EXPECT_EQ(reshard_bytes, 0);
    }
  }
}

TEST(Lower, EncoderRanksGetEqualFlopToWithinOneSequence) {
  Random random(5);
  const Plan plan = disaggregated_plan({1, 1, 4, {4}}, {1, 1, 2, {6}}, 3, 64);
  const Batch batch = random_batch(random, 64);
  const ModelSpec model = tiny_model();
  const Program program = lower(plan, model, batch, random_assignment(random, plan, batch.size()));
  // Weight as documented: FLOP of one layer; the largest sequence has at most 49 tokens.
  const auto weight = [&](const Workload& w) {
    return 2.0 * 49152 * static_cast<double>(w.tokens) + 4.0 * 64 * static_cast<double>(w.attention_pairs);
  };
  const double largest = weight({1, 50, 2500});
  for (int j = 0; j < plan.microbatches; ++j) {
    double total = 0;
    for (int e = 0; e < 4; ++e) total += weight(program.works[e * plan.microbatches + j].encoder);
    for (int e = 0; e < 4; ++e) {
      EXPECT_NEAR(weight(program.works[e * plan.microbatches + j].encoder), total / 4, largest);
    }
  }
}

// An LLM stage of 2 dp ranks with gradients in buckets of a third: 3 starts before its last backward, ready
// after 1/3, 2/3 and all of it, and 3 waits before the optimizer step. The bytes add up.
TEST(Lower, BucketsAreStartedBeforeTheLastBackwardAndAwaitedBeforeTheStep) {
  Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 1, 2, {6}}, 2, 4);
  const ModelSpec model = tiny_model();
  const std::int64_t bytes = 4 * stage_parameters(plan_stages(plan, model)[1], model);
  plan.gradient_bucket = {bytes / 3 + 1};
  Random random(8);
  const Batch batch = random_batch(random, 4);
  const Program program = lower(plan, model, batch, random_assignment(random, plan, batch.size()));
  verify(program);
  ASSERT_EQ(program.collectives.size(), 3u);
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(program.collectives[k].groups, (std::vector<std::int32_t>{1, 2}));
    EXPECT_DOUBLE_EQ(program.collectives[k].ready, static_cast<double>(k + 1) / 3);
    sum += program.collectives[k].bytes.count;
  }
  EXPECT_EQ(sum, bytes);
  for (const std::size_t g : {1, 2}) {
    std::vector<Instruction> tail(program.instructions.begin() + program.groups[g].begin,
                                  program.instructions.begin() + program.groups[g].end);
    const auto first_start = std::find_if(tail.begin(), tail.end(), [](const Instruction& instruction) {
      return instruction.op == Op::all_reduce_start;
    });
    tail.erase(tail.begin(), first_start);
    std::vector<Op> ops;
    for (const Instruction& instruction : tail) {
      if (instruction.op != Op::reshard_send) ops.push_back(instruction.op);
    }
    EXPECT_EQ(ops, (std::vector<Op>{Op::all_reduce_start, Op::all_reduce_start, Op::all_reduce_start,
                                    Op::backward, Op::all_reduce_wait, Op::all_reduce_wait,
                                    Op::all_reduce_wait, Op::optimizer_step}));
    EXPECT_EQ(tail[3].microbatch, 1);
  }
}

TEST(Lower, RejectsAnAssignmentThatDoesNotFit) {
  const Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 1, 2, {6}}, 2, 4);
  Random random(1);
  const Batch batch = random_batch(random, 4);
  EXPECT_THROW(lower(plan, tiny_model(), batch, {2, 2, {0, 1, 2}}), Error);     // a sample without a bin
  EXPECT_THROW(lower(plan, tiny_model(), batch, {2, 2, {0, 1, 2, 4}}), Error);  // no such bin
  EXPECT_THROW(lower(plan, tiny_model(), batch, {2, 2, {0, 1, 2, 2}}), Error);  // bin 3 is empty
  EXPECT_NO_THROW(lower(plan, tiny_model(), batch, {2, 2, {3, 1, 2, 0}}));
}

TEST(Lowering, AModelWithoutEncoderHasTextOnlyStages) {
  ModelSpec model;
  model.llm = {"llm", 4, 8, 12, 4, 2, 2, true, true, 10};
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {1, 2, 1, {0, 0}};
  plan.llm = {1, 2, 1, {2, 2}};
  const std::vector<Stage> stages = plan_stages(plan, model);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_FALSE(stages[0].connector || stages[1].connector);
  EXPECT_TRUE(stages[0].embedding && stages[1].head);
  // Tied embedding and head count once if they are on one stage: 8 * 10.
  Stage both;
  both.embedding = both.head = true;
  EXPECT_EQ(stage_parameters(both, model), 160);
  model.llm.tied_embeddings = true;
  EXPECT_EQ(stage_parameters(both, model), 80);
  EXPECT_EQ(stage_parameters(stages[1], model), stage_parameters(stages[0], model));
}

}  // namespace lowering_test
}  // namespace dflop
