// Placement of a plan's groups: the same program on other ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/program/lowering.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/random_plan.hpp"

namespace dflop {
namespace placement_test {

using testing::disaggregated_plan;
using Ranks = std::vector<std::int32_t>;

Ranks ranks_of(Plan plan, RankOrder placement) {
  plan.placement = placement;
  return first_ranks(plan);
}

Plan uniform_plan(int tp, int pp, int dp) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = plan.llm = {tp, pp, dp, {}};
  plan.encoder.layers.assign(pp, 0);
  plan.encoder.layers[0] = 4;
  plan.llm.layers = split_layers(6, pp);
  return plan;
}

TEST(Placement, OfAUniformPlanCountsDpOrStagesFirst) {
  const Plan plan = uniform_plan(4, 2, 3);
  // Stage 0 with dp 0, 1 and 2, then stage 1.
  EXPECT_EQ(ranks_of(plan, RankOrder::stage_major), (Ranks{0, 4, 8, 12, 16, 20}));
  // dp 0 on ranks 0 to 7, dp 1 on 8 to 15, dp 2 on 16 to 23.
  EXPECT_EQ(ranks_of(plan, RankOrder::replica_major), (Ranks{0, 8, 16, 4, 12, 20}));
}

TEST(Placement, OfADisaggregatedPlanPutsEncoderRanksNextToTheirLlmRanks) {
  // 2 pieces, each with 2 encoder ranks and one LLM dp rank that has 2 stages of 2 ranks:
  // E0 E1 L0.0 . L0.1 . | E2 E3 L1.0 . L1.1 .
  const Plan plan = disaggregated_plan({1, 1, 4, {4}}, {2, 2, 2, {3, 3}}, 1, 2);
  EXPECT_EQ(ranks_of(plan, RankOrder::stage_major), (Ranks{0, 1, 2, 3, 4, 6, 8, 10}));
  EXPECT_EQ(ranks_of(plan, RankOrder::replica_major), (Ranks{0, 1, 6, 7, 2, 8, 4, 10}));
}

TEST(Placement, PiecesKeepTpGroupsAtMultiplesOfTheirTp) {
  // With 2 pieces, each would begin with one encoder rank, and an LLM group of 2 would follow on ranks 1 and
  // 2. So there is one piece: E0 E1 L0 . L1 .
  const Plan narrow = disaggregated_plan({1, 1, 2, {4}}, {2, 1, 2, {6}}, 1, 2);
  EXPECT_EQ(ranks_of(narrow, RankOrder::replica_major), (Ranks{0, 1, 2, 4}));
  // The same with encoder and LLM swapped: a second piece would begin at rank 3.
  const Plan wide = disaggregated_plan({2, 1, 2, {4}}, {1, 1, 2, {6}}, 1, 2);
  EXPECT_EQ(ranks_of(wide, RankOrder::replica_major), (Ranks{0, 2, 4, 5}));
  // 4 pieces would have 1 encoder rank each, 2 have 2: E0 E1 L0 . L1 . | E2 E3 L2 . L3 .
  const Plan half = disaggregated_plan({1, 1, 4, {4}}, {2, 1, 4, {6}}, 1, 4);
  EXPECT_EQ(ranks_of(half, RankOrder::replica_major), (Ranks{0, 1, 6, 7, 2, 4, 8, 10}));
}

TEST(Placement, DecidesWhichMessagesAndReductionsStayInsideANode) {
  // 2 stages of 2 dp ranks with 4 GPUs each, on 2 nodes of 8. Placed by stage, messages go from node 0 to
  // node 1 and reductions stay inside a node; placed by replica it is the other way round.
  Plan plan = uniform_plan(4, 2, 2);
  plan.gbs = 2;
  Random random(5);
  const Batch batch = testing::random_batch(random, 2);
  const ClusterSpec cluster = testing::tiny_cluster(2, 8);
  for (const RankOrder placement : {RankOrder::stage_major, RankOrder::replica_major}) {
    plan.placement = placement;
    validate(plan, testing::tiny_model(), cluster);
    const Program program = lower(plan, testing::tiny_model(), batch, {1, 2, {0, 1}});
    const auto node = [&](std::int32_t group) { return cluster.node_of(program.groups[group].first_rank); };
    ASSERT_EQ(program.messages.size(), 4u);
    for (const Message& message : program.messages) {
      EXPECT_EQ(node(message.source) == node(message.destination), placement == RankOrder::replica_major);
    }
    ASSERT_EQ(program.collectives.size(), 2u);
    for (const Collective& reduction : program.collectives) {
      EXPECT_EQ(node(reduction.groups[0]) == node(reduction.groups[1]), placement == RankOrder::stage_major);
    }
  }
}

Plan random_plan(Random& random) {
  const auto pick = [&](int most) { return static_cast<int>(1 + random.below(most)); };
  const auto tp = [&] { return 1 << random.below(4); };
  Plan plan = uniform_plan(tp(), pick(3), pick(6));
  const auto kind = random.below(4);
  if (kind == 1) {
    plan.layout = Layout::colocated;
    plan.order = OrderKind::encoder_in_bubbles;
    plan.encoder = {plan.llm.tp, 1, plan.llm.dp * plan.llm.pp, {4}};
  } else if (kind == 3) {
    plan.layout = Layout::shared;
  } else if (kind == 2) {
    plan.layout = Layout::disaggregated;
    plan.encoder = {tp(), pick(3), pick(6), {}};
    plan.encoder.layers = split_layers(4, plan.encoder.pp);
  }
  if (kind == 3) testing::share_gpus(random, plan);
  plan.microbatches = pick(4);
  plan.gbs = plan.bins() + pick(10);
  return plan;
}

// If each tp divides the GPUs of a node, a plan that is valid by stage is also valid by replica.
TEST(Placement, MovesGroupsToOtherRanksAndNothingElse) {
  Random random(12);
  int moved = 0;
  int valid = 0;
  for (int round = 0; round < 300; ++round) {
    Plan plan = random_plan(random);
    const Batch batch = testing::random_batch(random, plan.gbs);
    const Assignment assignment = testing::random_assignment(random, plan, batch.size());
    const Program by_stage = lower(plan, testing::tiny_model(), batch, assignment);
    const bool aligned = plan.layout != Layout::disaggregated || plan.encoder.ranks() % plan.llm.tp == 0;
    if (aligned) validate(plan, testing::tiny_model(), testing::tiny_cluster(64, 8));
    valid += aligned ? 1 : 0;
    plan.placement = RankOrder::replica_major;
    if (aligned) validate(plan, testing::tiny_model(), testing::tiny_cluster(64, 8));
    const Program by_replica = lower(plan, testing::tiny_model(), batch, assignment);
    verify(by_replica);

    EXPECT_EQ(by_replica.ranks(), plan.ranks());
    EXPECT_EQ(by_replica.instructions, by_stage.instructions);
    EXPECT_EQ(by_replica.works, by_stage.works);
    ASSERT_EQ(by_replica.groups.size(), by_stage.groups.size());
    std::vector<int> holders(plan.ranks(), 0);
    for (std::size_t g = 0; g < by_replica.groups.size(); ++g) {
      const Group& group = by_replica.groups[g];
      EXPECT_EQ(group.stage, by_stage.groups[g].stage);
      EXPECT_EQ(group.dp_rank, by_stage.groups[g].dp_rank);
      EXPECT_EQ(group.ranks, by_stage.groups[g].ranks);
      for (int r = 0; r < group.ranks; ++r) ++holders.at(group.first_rank + r);
      moved += group.first_rank != by_stage.groups[g].first_rank ? 1 : 0;
    }
    EXPECT_EQ(holders, std::vector<int>(plan.ranks(), 1));  // every rank in one group
  }
  EXPECT_GT(moved, 0);
  EXPECT_GT(valid, 0);
}

TEST(Placement, ProgramsCountTheRanksOfAllGroups) {
  Program program;
  program.groups = {{4, 2, 0, 0, 0, 0}, {0, 4, 1, 0, 0, 0}};
  EXPECT_EQ(program.ranks(), 6);
}

TEST(Placement, IsNamedWhereItIsNotTheDefault) {
  Plan plan = uniform_plan(4, 2, 3);
  EXPECT_EQ(describe(plan), "tp4 pp2 dp3 mb1");
  plan.placement = RankOrder::replica_major;
  EXPECT_EQ(describe(plan), "tp4 pp2 dp3 mb1 replica-major");
}

}  // namespace placement_test
}  // namespace dflop
