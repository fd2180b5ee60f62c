#include "costmodel/analytic/analytic.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/iteration/iteration.hpp"
#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/communication.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/analytic/memory.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace analytic_test {

using fixtures::a100_cluster;
using fixtures::llava_llama3_8b;

constexpr double kTolerance = 1e-12;

// One microbatch of 5 tokens on three LLM layers of the small model: full recomputation keeps 5 * 16 per
// layer and restores the 5 * (184 - 16) that no recomputation would have kept. The cases: a forward, a whole
// backward, and both parts of a split backward.
TEST(AnalyticCostModel, PricesTheMemoryOfSplitBackwards) {
  Program program;
  program.microbatches = 2;
  program.works = {{{}, {2, 5, 13}}};
  program.stages.resize(1);
  program.stages[0].llm_layers = 3;
  program.instructions = {{Op::forward, 0, 0, 0},
                          {Op::backward_input, 0, 0, 0},
                          {Op::backward_weight, 0, 0, 0},
                          {Op::forward, 0, 1, 0},
                          {Op::backward, 0, 1, 0}};
  program.groups = {{0, 1, 0, 0, 0, 5}};
  const AnalyticCostModel cost(fixtures::small_model(), fixtures::small_cluster());
  const auto priced = [&](Recomputation mode) {
    program.stages[0].recomputation = mode;
    return cost.price(program).activation;
  };
  EXPECT_EQ(priced(Recomputation::full), (std::vector<Bytes>{{240}, {2520}, {2760}, {240}, {240}}));
  EXPECT_EQ(priced(Recomputation::none), (std::vector<Bytes>{{2760}, {0}, {2760}, {2760}, {2760}}));
}

AnalyticCostModel real_model() {
  return {llava_llama3_8b(), a100_cluster()};
}

Stage layers_only(int encoder_layers, int llm_layers, Recomputation mode, int tp) {
  Stage stage;
  stage.encoder_layers = encoder_layers;
  stage.llm_layers = llm_layers;
  stage.recomputation = mode;
  stage.tp = tp;
  return stage;
}

Stage random_stage(Random& random) {
  Stage stage = layers_only(static_cast<int>(random.below(28)), static_cast<int>(random.below(33)),
                            static_cast<Recomputation>(random.below(3)), 1 << random.below(4));
  stage.connector = random.below(2) == 1;
  stage.embedding = random.below(2) == 1;
  stage.head = random.below(2) == 1;
  stage.sequence_parallel = random.below(2) == 1;
  return stage;
}

Work random_work(Random& random) {
  const auto tiles = static_cast<std::int64_t>(random.below(20));
  const auto tokens = static_cast<std::int64_t>(random.below(8192));
  return {{tiles, tiles * 729, tiles * 729 * 729}, {1, tokens, tokens * tokens}};
}

TEST(AnalyticCostModel, BackwardIsInputPlusWeight) {
  Random random(8);
  const AnalyticCostModel cost = real_model();
  for (int i = 0; i < 1000; ++i) {
    const Stage stage = random_stage(random);
    const Work work = random_work(random);
    EXPECT_EQ(cost.compute(Op::backward, stage, work),
              cost.compute(Op::backward_input, stage, work) + cost.compute(Op::backward_weight, stage, work));
  }
}

TEST(AnalyticCostModel, FullRecomputationAddsOneForwardOfTheLayers) {
  Random random(9);
  const AnalyticCostModel cost = real_model();
  for (int i = 0; i < 1000; ++i) {
    const Work work = random_work(random);
    const int tp = 1 << random.below(4);
    const Stage full = layers_only(3, 5, Recomputation::full, tp);
    const Stage none = layers_only(3, 5, Recomputation::none, tp);
    const double forward = cost.compute(Op::forward, none, work).count();
    EXPECT_EQ(cost.compute(Op::forward, full, work).count(), forward);
    const double added =
        (cost.compute(Op::backward, full, work) - cost.compute(Op::backward, none, work)).count();
    EXPECT_NEAR(added, forward, kTolerance * (1 + forward));
  }
}

TEST(AnalyticCostModel, SelectiveRecomputationAddsTheAttentionCore) {
  const AnalyticCostModel cost = real_model();
  const Work work{{}, {1, 4096, 4096 * 4096}};
  const double added = (cost.compute(Op::backward, layers_only(0, 5, Recomputation::selective, 2), work) -
                        cost.compute(Op::backward, layers_only(0, 5, Recomputation::none, 2), work))
                           .count();
  const double core = attention_core(a100_cluster(), fixtures::llama3_8b(), work.llm, 2).forward.count();
  EXPECT_NEAR(added, 5 * core, kTolerance);
}

/// As convex_floor() promises, adding a chunk never adds less time than the chunk before it.
TEST(AnalyticCostModel, AHeadInChunksIsConvexInTokens) {
  Random random(10);
  ModelSpec model = llava_llama3_8b();
  Stage stage = layers_only(0, 1, Recomputation::none, 1);
  stage.head = true;
  for (int i = 0; i < 300; ++i) {
    model.llm.logits_at_once = static_cast<std::int64_t>(1 + random.below(std::uint64_t{1} << 32));
    stage.tp = 1 << random.below(4);
    const AnalyticCostModel cost(model, a100_cluster());
    const auto middle = static_cast<std::int64_t>(2 + random.below(32768));
    const auto reach = static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(middle) - 1));
    const auto forward = [&](std::int64_t tokens) {
      return cost.compute(Op::forward, stage, {{}, {1, tokens, 0}}).count();
    };
    const double below = forward(middle - reach);
    const double above = forward(middle + reach);
    EXPECT_LE(below, above);
    EXPECT_LE(2 * forward(middle), (below + above) * (1 + 1e-12));
  }
}

TEST(AnalyticCostModel, NoWorkTakesNoTime) {
  Random random(10);
  const AnalyticCostModel cost = real_model();
  for (int i = 0; i < 100; ++i) {
    const Stage stage = random_stage(random);
    for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight}) {
      EXPECT_EQ(cost.compute(op, stage, {}).count(), 0);
    }
  }
}

TEST(AnalyticCostModel, TextCostsTheEncoderNothing) {
  const AnalyticCostModel cost = real_model();
  const Work text{{}, {1, 1000, 1000000}};
  const Work both{{2, 1458, 2 * 729 * 729}, {1, 1000, 1000000}};
  Stage encoder = layers_only(27, 0, Recomputation::full, 1);
  encoder.connector = true;
  EXPECT_EQ(cost.compute(Op::forward, encoder, text).count(), 0);
  // A stage with both takes the sum.
  const Stage mixed = layers_only(27, 32, Recomputation::full, 1);
  EXPECT_NEAR(
      cost.compute(Op::forward, mixed, both).count(),
      (cost.compute(Op::forward, mixed, text) + cost.compute(Op::forward, mixed, {both.encoder, {}})).count(),
      kTolerance);
}

TEST(AnalyticCostModel, TensorParallelCommunicationByHand) {
  // 2 ranks, 5 tokens, h = 8, bf16: 80 bytes. One all-reduce: 2 steps of 1 s + 40 / 100 s = 2.8 s on the
  // small cluster's link. Compared with free links, forward has 3 layers * 2 + 1 (embedding) = 7 more of
  // them. Backward has 3 * 2 + 1 (head), and full recomputation repeats the layers' 6: 13. The weight part
  // adds none.
  const ClusterSpec cluster = fixtures::small_cluster();
  ClusterSpec free = cluster;
  free.intra_node = {Seconds(0), 1e30};
  const AnalyticCostModel with(fixtures::small_model(), cluster);
  const AnalyticCostModel without(fixtures::small_model(), free);
  const Work work{{}, {1, 5, 25}};
  Stage stage = layers_only(0, 3, Recomputation::full, 2);
  stage.embedding = stage.head = true;
  const auto added = [&](Op op) {
    return (with.compute(op, stage, work) - without.compute(op, stage, work)).count();
  };
  EXPECT_NEAR(added(Op::forward), 7 * 2.8, 1e-9);
  EXPECT_NEAR(added(Op::backward_input), 13 * 2.8, 1e-9);
  EXPECT_EQ(added(Op::backward_weight), 0);
}

TEST(AnalyticCostModel, ConnectorCommunicationByHand) {
  // 6 encoder tokens merge to 3. Forward, the output, 16 wide: 96 bytes, 2 * (1 + 48 / 100) = 2.96 s.
  // Backward, the input's gradient, 8 wide: 48 bytes, 2 * (1 + 24 / 100) = 2.48 s.
  ModelSpec model = fixtures::small_model();
  model.connector.widths = {8, 8, 16};
  const ClusterSpec cluster = fixtures::small_cluster();
  ClusterSpec free = cluster;
  free.intra_node = {Seconds(0), 1e30};
  const AnalyticCostModel with(model, cluster);
  const AnalyticCostModel without(model, free);
  Stage stage;
  stage.connector = true;
  stage.tp = 2;
  const Work work{{2, 6, 18}, {}};
  const auto added = [&](Op op) {
    return (with.compute(op, stage, work) - without.compute(op, stage, work)).count();
  };
  EXPECT_NEAR(added(Op::forward), 2.96, 1e-9);
  EXPECT_NEAR(added(Op::backward), 2.48, 1e-9);
}

// The copies of an encoder gather as many rows as the connector makes from the heaviest copy's tokens, in
// bf16, after the forward; before the backward they gather the gradients, unless nothing is trained.
TEST(AnalyticCostModel, CopiesOfAnEncoderGatherTheirOutputs) {
  const AnalyticCostModel cost = real_model();
  const ModelSpec model = llava_llama3_8b();
  Stage stage = layers_only(model.encoder.layers, 0, Recomputation::none, 1);
  stage.connector = true;
  Stage copies = stage;
  copies.copies = 4;
  const Work work{{2, 1458, 1'062'882}, {}};
  const double bytes = 2.0 * connector_tokens(model, work.encoder) * static_cast<double>(model.sent_width());
  const double gather = copies_gather_time(a100_cluster(), 4, bytes).count();
  EXPECT_GT(gather, 0);
  for (const Op op : {Op::forward, Op::backward}) {
    const double more = (cost.compute(op, copies, work) - cost.compute(op, stage, work)).count();
    EXPECT_NEAR(more, gather, 1e-9 * gather + 1e-15);
  }
  stage.trained = copies.trained = {false, false, true, 0};
  EXPECT_EQ(cost.compute(Op::backward, copies, work), cost.compute(Op::backward, stage, work));
}

TEST(AnalyticCostModel, OptimizerStreamsThirtyBytesForEachOwnedParameter) {
  // 3 LLM layers: 1440 parameters. 43200 bytes at 50 bytes/s; under ZeRO-1 each of 4 ranks has a quarter.
  const AnalyticCostModel cost(fixtures::small_model(), fixtures::small_cluster());
  Stage stage = layers_only(0, 3, Recomputation::full, 1);
  stage.dp = 4;
  EXPECT_DOUBLE_EQ(cost.optimizer_step(stage).count(), 216);
  stage.zero1 = false;
  EXPECT_DOUBLE_EQ(cost.optimizer_step(stage).count(), 864);
  // All states in bf16: 14 bytes per parameter, 20160 at 50 bytes/s.
  stage.optimizer_states = OptimizerStates::bf16;
  EXPECT_DOUBLE_EQ(cost.optimizer_step(stage).count(), 403.2);
}

TEST(AnalyticCostModel, OnlyComputeOpsHaveAComputeTime) {
  EXPECT_THROW(real_model().compute(Op::send, Stage{}, Work{}), Error);
}

TEST(AnalyticCostModel, PricesAWholeProgram) {
  Plan plan;
  plan.gbs = 8;
  plan.encoder = {1, 1, 2, {27}};
  plan.llm = {2, 2, 1, {16, 16}};
  plan.microbatches = 4;
  std::vector<Sample> batch(8);
  for (Sample& sample : batch) {
    sample.encoder_sequences = {{2, 729, 729 * 729}};
    sample.encoder_output_tokens = 1458;
    sample.llm_tokens = 1600;
  }
  const Program program = lower(plan, llava_llama3_8b(), batch, {4, 1, {0, 1, 2, 3, 0, 1, 2, 3}});
  const AnalyticCostModel cost = real_model();
  const ProgramCosts costs = cost.price(program);
  ASSERT_EQ(costs.instruction.size(), program.instructions.size());
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    EXPECT_EQ(costs.instruction[i].count() > 0,
              is_compute(program.instructions[i].op) || program.instructions[i].op == Op::optimizer_step);
  }
  for (const Nanoseconds time : costs.message) EXPECT_GT(time.count(), 0);
  for (const Nanoseconds time : costs.collective) EXPECT_GT(time.count(), 0);
  ASSERT_EQ(costs.model_state.size(), program.groups.size());
  EXPECT_EQ(costs.model_state[0], model_state_bytes(program.stages[0], llava_llama3_8b()));
}

// Instructions of a program share prices of layers and passes. Each takes the time that compute() returns.
TEST(AnalyticCostModel, APriceEqualsTheInstructionsOneByOne) {
  Random random(5);
  const ModelSpec model = testing::tiny_model();
  ClusterSpec cluster = fixtures::small_cluster();
  cluster.nodes = 64;
  const AnalyticCostModel cost(model, cluster);
  int compute = 0;
  for (int round = 0; round < 200; ++round) {
    const OrderKind order = pipeline_orders()[random.below(pipeline_orders().size())].kind;
    const Layout layout = all_of<Layout>()[random.below(kNames<Layout>.size())];
    if (!fits(traits(order), layout)) continue;
    Plan plan = testing::random_plan(random, order, layout);
    plan.recomputation = all_of<Recomputation>()[random.below(kNames<Recomputation>.size())];
    plan.trained = testing::random_trained(random);
    std::vector<Sample> batch(plan.gbs);
    for (Sample& sample : batch) {
      const auto tiles = static_cast<std::int64_t>(random.below(4));
      if (tiles > 0) sample.encoder_sequences = {{tiles, tiles * 9, tiles * 81}};
      sample.encoder_output_tokens = tiles * 4;
      sample.llm_tokens = sample.encoder_output_tokens + 1 + static_cast<std::int64_t>(random.below(30));
    }
    const Assignment assignment = testing::random_assignment(random, plan, batch.size());
    const Iteration iteration = make_iteration({model, cluster, cost}, plan, batch, assignment);
    const Program& program = iteration.program;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!is_compute(instruction.op)) continue;
      const Stage& stage = program.stages[instruction.stage];
      const Work& work = program.works[instruction.index];
      EXPECT_EQ(iteration.costs.instruction[i], to_nanoseconds(cost.compute(instruction.op, stage, work)));
      const Seconds both = cost.compute(Op::forward, stage, work) + cost.compute(Op::backward, stage, work);
      EXPECT_EQ(cost.both_passes(stage, work), both);
      ++compute;
    }
  }
  EXPECT_GT(compute, 1000);
}

TEST(Analytic, APassTakesNoLessThanItsLaunches) {
  // 3 layers of 100,000 s are far longer than their kernels. Full recomputation launches the forward again.
  ClusterSpec cluster = fixtures::small_cluster();
  cluster.software.layer_launch = Seconds(100'000);
  ModelSpec spec = fixtures::small_model();
  Stage stage;
  stage.llm_layers = 3;
  const Work work{{}, {2, 5, 13}};
  const auto time = [&](Op op) { return AnalyticCostModel(spec, cluster).compute(op, stage, work).count(); };
  EXPECT_DOUBLE_EQ(time(Op::forward), 300'000);
  EXPECT_DOUBLE_EQ(time(Op::backward), 600'000);
  EXPECT_DOUBLE_EQ(time(Op::backward_input), 450'000);
  EXPECT_DOUBLE_EQ(time(Op::backward_weight), 150'000);
  stage.recomputation = Recomputation::none;
  EXPECT_DOUBLE_EQ(time(Op::backward), 300'000);
  // An unfused softmax has two fifths more kernels.
  spec.llm.attention = AttentionKernel::softmax;
  EXPECT_DOUBLE_EQ(time(Op::forward), 420'000);
  // Without work nothing is launched.
  EXPECT_EQ(AnalyticCostModel(spec, cluster).compute(Op::forward, stage, {}).count(), 0);
}

}  // namespace analytic_test
}  // namespace dflop
