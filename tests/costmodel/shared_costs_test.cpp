// Costs on a share of a GPU.
#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "costmodel/correction/corrected.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace shared_costs_test {

using fixtures::small_cluster;

constexpr double kUnbounded = 1e30;

// Arithmetic that takes 327.68 s on the whole GPU takes four times as long on a quarter.
TEST(SharedCosts, ArithmeticScalesWithTheShare) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.memory_bandwidth_bytes_per_s = kUnbounded;
  EXPECT_DOUBLE_EQ(matrix_product(Processor(cluster, 0.25), 10, 32, 64).forward.count(), 4 * 327.68);
}

// 2 * (10 * 96 + 32 * 64) = 6016 bytes at 100 * 0.5: 120.32 s. If 0.4 of the GPU saturates the memory:
// equally long on 0.4 and 0.5, twice as long on 0.2. If sharing the cache makes the traffic half as much
// again: 1.5 times.
TEST(SharedCosts, TrafficDoesNotBelowTheSaturatingShare) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.peak_flop_per_s = kUnbounded;
  cluster.gpu.saturating_share = 0.4;
  const auto forward = [&](double share) {
    return matrix_product(Processor(cluster, share), 10, 32, 64).forward.count();
  };
  EXPECT_DOUBLE_EQ(forward(0.5), 120.32);
  EXPECT_DOUBLE_EQ(forward(0.4), 120.32);
  EXPECT_DOUBLE_EQ(forward(0.2), 240.64);
  cluster.software.shared_cache_factor = 1.5;
  EXPECT_DOUBLE_EQ(forward(0.5), 180.48);
  EXPECT_DOUBLE_EQ(matrix_product(Processor(cluster), 10, 32, 64).forward.count(), 120.32);  // alone
}

// 0.4 of the GPU saturates the memory: on a fifth of the GPU, Adam's bytes take twice as long, at half the
// bandwidth.
TEST(SharedCosts, OptimizerStepsTakeTheirPartOfTheBandwidth) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.saturating_share = 0.4;
  const AnalyticCostModel cost(fixtures::small_model(), cluster);
  Stage stage;
  stage.llm_layers = 1;
  const double alone = cost.optimizer_step(stage).count();
  stage.share = 0.2;
  EXPECT_DOUBLE_EQ(cost.optimizer_step(stage).count(), 2 * alone);
  EXPECT_DOUBLE_EQ(cost.optimizer_bandwidth(stage), 0.5);
  stage.share = 0.8;
  EXPECT_DOUBLE_EQ(cost.optimizer_step(stage).count(), alone);
  EXPECT_DOUBLE_EQ(cost.optimizer_bandwidth(stage), 1);
}

// The shares that stages ask for are granted in quanta of 8 out of 20: 0.3 is 6, so 8, and the LLM has 8 as
// well.
TEST(SharedCosts, UseTheGrantedShare) {
  ClusterSpec cluster = small_cluster();
  cluster.gpu.memory_bandwidth_bytes_per_s = kUnbounded;
  cluster.software.kernel_overhead = Seconds(0);
  const AnalyticCostModel unknown(fixtures::small_model(), cluster);
  cluster.gpu.multiprocessors = 20;
  const AnalyticCostModel cost(fixtures::small_model(), cluster);
  Stage encoder;
  encoder.encoder_layers = 1;
  Stage llm;
  llm.llm_layers = 1;
  const Work work{{1, 4, 16}, {1, 4, 16}};
  for (Stage stage : {encoder, llm}) {
    const double whole = cost.compute(Op::forward, stage, work).count();
    stage.share = stage.encoder_layers > 0 ? 0.3 : 0.7;
    const double granted = 0.4;
    EXPECT_NEAR(cost.compute(Op::forward, stage, work).count(), whole / granted, 1e-9 * whole);
    EXPECT_NEAR(unknown.compute(Op::forward, stage, work).count(), whole / stage.share, 1e-9 * whole);
  }
}

// The traffic of an instruction does not depend on its share, and it never exceeds what the share can move.
TEST(SharedCosts, BandwidthIsTrafficOverTime) {
  ClusterSpec cluster = fixtures::a100_cluster();
  const ModelSpec model = fixtures::llava_llama3_8b();
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    cluster.gpu.saturating_share = 0.1 + 0.9 * random.uniform();
    const AnalyticCostModel cost(model, cluster);
    Stage stage;
    (round % 2 == 0 ? stage.encoder_layers : stage.llm_layers) = 1 + static_cast<int>(random.below(9));
    stage.head = round % 4 == 1;
    stage.tp = 1 << random.below(3);
    stage.recomputation = static_cast<Recomputation>(random.below(3));
    const auto tokens = static_cast<std::int64_t>(1 + random.below(20'000));
    const Work work{{1, tokens, tokens * tokens}, {1, tokens, tokens * tokens / 2}};
    for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight}) {
      stage.share = 1;
      const double moved = cost.bandwidth(op, stage, work) * cost.compute(op, stage, work).count();
      double before = cost.compute(op, stage, work).count();
      for (const double share : {0.875, 0.5, 0.25, 0.125}) {
        stage.share = share;
        const double time = cost.compute(op, stage, work).count();
        const double bandwidth = cost.bandwidth(op, stage, work);
        EXPECT_GE(time, before);
        EXPECT_NEAR(bandwidth * time, moved, 1e-9 * time);
        EXPECT_GT(bandwidth, 0);
        EXPECT_LE(bandwidth, std::min(1.0, share / cluster.gpu.saturating_share) + 1e-12);
        EXPECT_EQ(cost.convex_floor(op, stage, work), cost.compute(op, stage, work));
        before = time;
      }
    }
  }
}

/// The plan has two encoder ranks and two LLM ranks on two GPUs.
Program four_ranks() {
  Program program;
  program.stages.resize(2);
  program.stages[1].llm_layers = 1;
  program.groups = {{0, 1, 0, 0, 0, 0}, {1, 1, 0, 1, 0, 0}, {2, 1, 1, 0, 0, 0}, {3, 1, 1, 1, 0, 0}};
  program.shared_gpus = 2;
  return program;
}

// Ranks that share a GPU copy the 200 bytes: they are read and written at 100 * 0.5 bytes per second, 8 s.
// Other messages take 1 + 2 s within the node.
TEST(SharedCosts, MessagesToTheSameGpuAreCopies) {
  const Program program = four_ranks();
  const ClusterSpec cluster = small_cluster();
  const auto time = [&](std::int32_t from, std::int32_t to) {
    return message_time(cluster, {from, to, 0, {200}, {300}}, program).count();
  };
  EXPECT_DOUBLE_EQ(time(0, 2), 8);
  EXPECT_DOUBLE_EQ(time(3, 1), 8);
  EXPECT_DOUBLE_EQ(time(0, 3), 1 + 3);  // port_bytes
  EXPECT_DOUBLE_EQ(time(0, 1), 1 + 3);
}

// One encoder rank sends its rows to two LLM ranks, of which one is on another GPU. The busier GPU moves half
// of the 300 bytes over the link within the node: 1 + 1.5 s.
TEST(SharedCosts, MessagesBetweenGroupsOfUnlikeSizesLeaveTheirGpus) {
  Program program;
  program.stages.resize(2);
  program.stages[0].tp = 2;
  program.stages[1].tp = 4;
  program.stages[1].llm_layers = 1;
  program.groups = {{0, 2, 0, 0, 0, 0}, {2, 2, 0, 1, 0, 0}, {4, 4, 1, 0, 0, 0}};
  program.shared_gpus = 4;
  EXPECT_FALSE(stays_on_gpus({0, 2, 0, {200}, {300}}, program));
  EXPECT_FALSE(stays_on_gpus({2, 0, 0, {200}, {300}}, program));
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 2, 0, {200}, {300}}, program).count(), 1 + 1.5);
}

// The hub's only rank sends one copy to each of an LLM group's two ranks, on its own GPU and on another, and
// receives one back.
TEST(SharedCosts, AHubServesRanksOnOtherGpus) {
  Program program;
  program.stages.resize(2);
  program.stages[1].tp = 2;
  program.stages[1].llm_layers = 1;
  program.groups = {{0, 1, 0, 0, 0, 0}, {1, 1, 0, 1, 0, 0}, {2, 2, 1, 0, 0, 0}};
  program.groups[2].stage = 1;
  program.shared_gpus = 2;
  program.hub = 0;
  EXPECT_FALSE(stays_on_gpus({0, 2, 0, {200}, {400}}, program));
  EXPECT_TRUE(stays_on_gpus({2, 0, 0, {200}, {200}}, program));
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {2, 0, 0, {200}, {200}}, program).count(), 8);
}

// The ranks of each module are on the GPUs of one node, and both modules are on the same node.
TEST(SharedCosts, NodesFollowTheGpus) {
  Program program = four_ranks();
  ClusterSpec cluster = small_cluster();
  cluster.gpus_per_node = 1;
  EXPECT_FALSE(inside_node(cluster, {2, 3, 0, {1}, {1}}, program));
  cluster.gpus_per_node = 2;
  EXPECT_TRUE(inside_node(cluster, {2, 3, 0, {1}, {1}}, program));  // ranks 2 and 3 on GPUs 0 and 1
  EXPECT_TRUE(inside_node(cluster, {0, 3, 0, {1}, {1}}, program));
  program.shared_gpus = 0;
  EXPECT_FALSE(inside_node(cluster, {0, 3, 0, {1}, {1}}, program));
}

/// Each sample makes its pass a millisecond longer.
class SlowSamples final : public CostModelOver {
 public:
  using CostModelOver::CostModelOver;
  Seconds sample_excess(Op, const Stage&, const Sample&) const override { return Seconds(1e-3); }
};

// The bytes follow from the sums of work, so the bandwidth falls as the time grows.
TEST(SharedCosts, SamplesThatTakeLongerMoveNoMore) {
  Random random(6);
  const ModelSpec model = testing::tiny_model();
  const ClusterSpec cluster = fixtures::a100_cluster();
  const AnalyticCostModel base(model, cluster);
  const Plan plan = testing::random_plan(random, OrderKind::one_f_one_b, Layout::shared);
  const Batch batch = testing::random_batch(random, plan.gbs);
  const Iteration iteration = make_iteration({model, cluster, base}, plan, batch,
                                             testing::random_assignment(random, plan, batch.size()));
  const ProgramCosts slow = price(SlowSamples(base), iteration);
  const auto bytes = [](const ProgramCosts& costs, std::size_t i) {
    return costs.bandwidth[i] * static_cast<double>(costs.instruction[i].count());
  };
  int longer = 0;
  for (std::size_t i = 0; i < slow.instruction.size(); ++i) {
    longer += slow.instruction[i] > iteration.costs.instruction[i] ? 1 : 0;
    EXPECT_NEAR(bytes(slow, i), bytes(iteration.costs, i), 1e-6 * bytes(iteration.costs, i));
  }
  EXPECT_GT(longer, 0);
}

TEST(SharedCosts, ProgramsOfSharedPlansHaveBandwidths) {
  Random random(5);
  const AnalyticCostModel cost(testing::tiny_model(), fixtures::a100_cluster());
  for (const Layout layout : {Layout::shared, Layout::disaggregated}) {
    const Plan plan = testing::random_plan(random, OrderKind::one_f_one_b, layout);
    const Batch batch = testing::random_batch(random, plan.gbs);
    const Program program =
        lower(plan, testing::tiny_model(), batch, testing::random_assignment(random, plan, batch.size()));
    const ProgramCosts costs = cost.price(program);
    if (layout != Layout::shared) {
      EXPECT_TRUE(costs.bandwidth.empty());
      continue;
    }
    ASSERT_EQ(costs.bandwidth.size(), program.instructions.size());
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const Stage& stage = program.stages[instruction.stage];
      const double expected = instruction.op == Op::optimizer_step ? cost.optimizer_bandwidth(stage)
                              : is_compute(instruction.op)
                                  ? cost.bandwidth(instruction.op, stage, program.works[instruction.index])
                                  : 0;
      EXPECT_EQ(costs.bandwidth[i], expected);
    }
  }
}

}  // namespace shared_costs_test
}  // namespace dflop
