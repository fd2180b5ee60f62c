// Nodes of several GPU types: each rank is priced on its own GPU, and bounds hold on all of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/iteration/iteration.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace mixed_cluster_test {

NodeGroup random_group(Random& random, int nodes) {
  const auto scale = [&](double value) { return value * (0.25 + random.uniform()); };
  const ClusterSpec usual = fixtures::a100_cluster();
  NodeGroup group{nodes, usual.gpu, usual.software};
  group.gpu.name = "gpu" + std::to_string(random.below(1000));
  group.gpu.memory = Bytes{static_cast<std::int64_t>(1 + random.below(80)) << 30};
  group.gpu.peak_flop_per_s = scale(group.gpu.peak_flop_per_s);
  group.gpu.memory_bandwidth_bytes_per_s = scale(group.gpu.memory_bandwidth_bytes_per_s);
  for (const auto figure :
       {&SoftwareSpec::gemm_efficiency, &SoftwareSpec::gemm_half_tokens, &SoftwareSpec::gemm_half_width,
        &SoftwareSpec::attention_forward_efficiency, &SoftwareSpec::attention_backward_efficiency,
        &SoftwareSpec::attention_half_tokens, &SoftwareSpec::memory_efficiency}) {
    group.software.*figure = scale(group.software.*figure) / 1.25;
  }
  group.software.kernel_overhead = Seconds(scale(20e-6));
  group.software.layer_launch = Seconds(scale(40e-6));
  group.software.tensor_overlap = random.uniform();
  return group;
}

/// Three groups of nodes with four GPUs each. The first and the last have the same GPU.
ClusterSpec random_mix(Random& random) {
  ClusterSpec cluster = fixtures::a100_cluster();
  cluster.gpus_per_node = 4;
  const NodeGroup first = random_group(random, 1);
  NodeGroup last = first;
  last.nodes = 20;
  set_node_groups(cluster, {first, random_group(random, 2), last});
  return cluster;
}

Work random_work(Random& random) {
  const auto some = [&] {
    const auto tokens = static_cast<std::int64_t>(1 + random.below(5000));
    return Workload{3, tokens, tokens * tokens / 3};
  };
  return {some(), some()};
}

TEST(MixedCluster, SumsAndRanksFollowTheGroups) {
  ClusterSpec cluster = fixtures::small_cluster();  // four GPUs per node
  NodeGroup old{3, cluster.gpu, cluster.software};
  NodeGroup fast = old;
  old.gpu.memory = Bytes{100};
  fast.nodes = 1;
  fast.gpu.name = "fast";
  fast.gpu.peak_flop_per_s = 3000;
  fast.gpu.memory = Bytes{80};
  set_node_groups(cluster, {old, fast});
  EXPECT_EQ(cluster.nodes, 4);
  EXPECT_EQ(cluster.peak_flop_per_s(), 3 * 4 * 1000 + 4 * 3000);
  EXPECT_EQ(cluster.gpu_of(11).name, "small");
  EXPECT_EQ(cluster.gpu_of(12).name, "fast");
  EXPECT_EQ(cluster.gpu.name, "fast") << "the least memory";

  set_node_groups(cluster, {old, old});
  EXPECT_FALSE(cluster.is_mixed());
  EXPECT_EQ(cluster.nodes, 6);
  EXPECT_EQ(cluster.peak_flop_per_s(), 6 * 4 * 1000);
}

// On GPUs that differ only by name, a program costs the same as on a single type.
TEST(MixedCluster, EqualTypesChangeNothing) {
  const ModelSpec model = testing::tiny_model();
  ClusterSpec uniform = fixtures::a100_cluster();
  uniform.nodes = 16;
  ClusterSpec mixed = uniform;
  NodeGroup other{uniform.nodes - 1, uniform.gpu, uniform.software};
  other.gpu.name = "other";
  set_node_groups(mixed, {{1, uniform.gpu, uniform.software}, other});
  ASSERT_TRUE(mixed.is_mixed());
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Plan plan = testing::random_plan(random, OrderKind::one_f_one_b, Layout::disaggregated);
    const Batch batch = testing::random_batch(random, plan.gbs);
    const Program program = lower(plan, model, batch, testing::random_assignment(random, plan, batch.size()));
    const ProgramCosts one = AnalyticCostModel(model, uniform).price(program);
    const ProgramCosts both = AnalyticCostModel(model, mixed).price(program);
    EXPECT_EQ(one.instruction, both.instruction);
    EXPECT_EQ(one.message, both.message);
    EXPECT_EQ(one.collective, both.collective);
    EXPECT_EQ(one.activation, both.activation);
  }
}

TEST(MixedCluster, EachGroupIsPricedByTheSlowestOfItsOwnNodes) {
  const ModelSpec model = testing::tiny_model();
  int spread = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ClusterSpec mixed = random_mix(random);
    const Layout layout = random.below(2) == 0 ? Layout::uniform : Layout::disaggregated;
    const Plan plan = testing::random_plan(random, OrderKind::one_f_one_b, layout);
    const Batch batch = testing::random_batch(random, plan.gbs);
    const Program program = lower(plan, model, batch, testing::random_assignment(random, plan, batch.size()));
    const ProgramCosts costs = AnalyticCostModel(model, mixed).price(program);
    // Nodes 0 and 3 onward are of one type, nodes 1 and 2 of the other.
    const ProgramCosts outer =
        AnalyticCostModel(model, mixed.with_gpus_of(mixed.node_groups[0])).price(program);
    const ProgramCosts inner =
        AnalyticCostModel(model, mixed.with_gpus_of(mixed.node_groups[1])).price(program);
    for (const Group& group : program.groups) {
      bool is_inner = false;
      bool is_outer = false;
      for (int rank = group.first_rank; rank < group.first_rank + group.ranks; ++rank)
        (rank / 4 == 1 || rank / 4 == 2 ? is_inner : is_outer) = true;
      spread += is_inner && is_outer ? 1 : 0;
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const Nanoseconds expected = std::max(is_inner ? inner.instruction[i] : Nanoseconds(0),
                                              is_outer ? outer.instruction[i] : Nanoseconds(0));
        ASSERT_EQ(costs.instruction[i], expected);
      }
    }
  }
  EXPECT_GT(spread, 0) << "a tp group lies on nodes of both types somewhere";
}

TEST(MixedCluster, FloorsAreBelowAllTypesAndComputeUsesTheSlowest) {
  const ModelSpec model = fixtures::llava_llama3_8b();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ClusterSpec mixed = random_mix(random);
    const AnalyticCostModel cost(model, mixed);
    Stage stage;
    stage.encoder_layers = static_cast<int>(random.below(4));
    stage.llm_layers = static_cast<int>(random.below(4));
    stage.connector = random.below(2) == 0;
    stage.embedding = random.below(2) == 0;
    stage.head = random.below(2) == 0;
    stage.tp = 1 << random.below(3);
    stage.recomputation = static_cast<Recomputation>(random.below(kNames<Recomputation>.size()));
    const Work work = random_work(random);
    for (const Op op : {Op::forward, Op::backward, Op::backward_input, Op::backward_weight}) {
      Seconds slowest{0};
      for (const NodeGroup& group : mixed.node_groups) {
        const AnalyticCostModel alone(model, mixed.with_gpus_of(group));
        slowest = std::max(slowest, alone.compute(op, stage, work));
        EXPECT_LE(cost.convex_floor(op, stage, work)->count(),
                  alone.compute(op, stage, work).count() * (1 + 1e-12));
        EXPECT_LE(cost.optimizer_step(stage), alone.optimizer_step(stage) * (1 + 1e-12));
      }
      EXPECT_EQ(cost.compute(op, stage, work), slowest);
    }
  }
}

}  // namespace mixed_cluster_test
}  // namespace dflop
