#include "costmodel/analytic/communication.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/support/random.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop {
namespace communication_test {

using fixtures::small_cluster;

/// Consecutive groups of `tp` ranks each, all of one stage.
Program groups_of(int tp, int groups, bool sequence_parallel) {
  Program program;
  program.stages.resize(1);
  program.stages[0].tp = tp;
  program.stages[0].sequence_parallel = sequence_parallel;
  for (int g = 0; g < groups; ++g) program.groups.push_back({g * tp, tp, 0, g, 0, 0});
  return program;
}

Collective over(std::vector<std::int32_t> groups, std::int64_t bytes) {
  return {std::move(groups), Bytes{bytes}};
}

/// Returns the time of a ring all-reduce: 2 (n - 1) steps of bytes / n.
Seconds ring_all_reduce(const Link& link, int ranks, double bytes) {
  return 2 * (ranks - 1) * (link.latency + Seconds(bytes / ranks / link.bandwidth_bytes_per_s));
}

TEST(Communication, MessageTierFollowsTheNodesOfAllRanks) {
  // Groups of 2 on nodes of 4: groups 0 and 1 share a node, group 2 is on the next. 2 pairs of ranks carry
  // 100 bytes each.
  const Program program = groups_of(2, 4, true);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 1, 0, {200}, {200}}, program).count(), 1 + 1);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {1, 2, 0, {200}, {200}}, program).count(), 10 + 10);
}

TEST(Communication, GroupThatStraddlesNodesUsesTheSlowLink) {
  // Groups of 3 on nodes of 4: group 1 has ranks 3, 4 and 5. 3 pairs of ranks carry 100 bytes each.
  const Program program = groups_of(3, 2, true);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 1, 0, {300}, {300}}, program).count(), 10 + 10);
}

TEST(Communication, WithoutSequenceParallelismThePartsAreGathered) {
  // 2 pairs carry 100 bytes each, 1 + 1; the all-gather of 200 bytes has one step of 1 + 1.
  const Program program = groups_of(2, 2, false);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 1, 0, {200}, {200}}, program).count(), 2 + 2);
}

TEST(Communication, MessagesHaveAnOverhead) {
  ClusterSpec cluster = small_cluster();
  cluster.software.message_overhead = Seconds(5);
  const Program program = groups_of(1, 2, true);
  EXPECT_DOUBLE_EQ(message_time(cluster, {0, 1, 0, {100}, {100}}, program).count(), 1 + 1 + 5);
}

TEST(Communication, TensorsAreReducedInAndBetweenNodes) {
  // 4 ranks on one node of 4: the ring of 200 bytes as above, 9 s. 8 ranks: 6 steps of 1 s in the nodes and 2
  // of 10 s between them; 2 x 150 / 100 s inside overlap 2 x 25 / 10 s between, which take longer. If nodes
  // are connected ten times faster, the links inside are the bottleneck.
  EXPECT_DOUBLE_EQ(tensor_all_reduce_time(small_cluster(), 4, 200).count(), 9);
  EXPECT_DOUBLE_EQ(tensor_all_reduce_time(small_cluster(), 8, 200).count(), 6 + 20 + 5);
  ClusterSpec fast = small_cluster();
  fast.inter_node.bandwidth_bytes_per_s *= 10;
  EXPECT_DOUBLE_EQ(tensor_all_reduce_time(fast, 8, 200).count(), 6 + 20 + 3);
  EXPECT_EQ(tensor_all_reduce_time(small_cluster(), 1, 200).count(), 0);
}

TEST(Communication, GradientRingsMayShareOneCard) {
  // 4 groups of tp 2, two on each node of 4. Inside: 2 steps of 1 + 200 / 2 / 100 s = 4 s. Between, each rank
  // with its own network card: 2 steps of 10 + 100 / 2 / 10 s = 30 s. If both tp indices share 16 bytes/s for
  // their 400 bytes: 2 steps of 10 + 400 / 2 / 16 s = 45 s.
  ClusterSpec cluster = small_cluster();
  const Program program = groups_of(2, 4, true);
  EXPECT_DOUBLE_EQ(all_reduce_time(cluster, over({0, 1, 2, 3}, 200), program).count(), 4 + 30);
  cluster.software.node_ring_bandwidth_bytes_per_s = 16;
  EXPECT_DOUBLE_EQ(all_reduce_time(cluster, over({0, 1, 2, 3}, 200), program).count(), 4 + 45);
  // One group per node, with its own network card. 2 steps of 10 + 200 / 2 / 10.
  EXPECT_DOUBLE_EQ(all_reduce_time(cluster, over({0, 2}, 200), program).count(), 40);
}

TEST(Communication, AReductionNamesItsLimit) {
  // As above: inside 2 phases of 1 + 1 s, between 2 steps of 10 s and 10 s of bytes, or 25 s of bytes if 16
  // bytes/s are shared. The first two groups by themselves are on one node: 2 steps of 1 + 1.
  ClusterSpec cluster = small_cluster();
  const Program program = groups_of(2, 4, true);
  const auto times = [&](std::vector<std::int32_t> groups) {
    return reduction_times(cluster, over(std::move(groups), 200), program);
  };
  EXPECT_DOUBLE_EQ(times({0, 1, 2, 3}).latency.count(), 2 + 20);
  EXPECT_DOUBLE_EQ(times({0, 1, 2, 3}).intra_node.count(), 2);
  EXPECT_DOUBLE_EQ(times({0, 1, 2, 3}).inter_node.count(), 10);
  EXPECT_EQ(times({0, 1, 2, 3}).node_ring.count(), 0);
  EXPECT_DOUBLE_EQ(times({0, 1}).intra_node.count(), 2);
  EXPECT_EQ(times({0}).sum().count(), 0);
  cluster.software.node_ring_bandwidth_bytes_per_s = 16;
  EXPECT_DOUBLE_EQ(times({0, 1, 2, 3}).node_ring.count(), 25);
  EXPECT_EQ(times({0, 1, 2, 3}).inter_node.count(), 0);
  EXPECT_DOUBLE_EQ(times({0, 2}).inter_node.count(), 20);  // 2 * 200 / 2 / 10: its own network card
  for (const auto algorithm : all_of<CollectiveAlgorithm>()) {
    cluster.collectives = algorithm;
    const Collective all = over({0, 1, 2, 3}, 200);
    EXPECT_DOUBLE_EQ(reduction_times(cluster, all, program).sum().count(),
                     all_reduce_time(cluster, all, program).count());
  }
}

TEST(Communication, TheGroupWithFewerRanksLimits) {
  // One rank to two: one pair carries all 200 bytes, in either direction.
  Program program = groups_of(2, 1, true);
  program.groups.push_back({2, 1, 0, 1, 0, 0});
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 1, 0, {200}, {200}}, program).count(), 1 + 2);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {1, 0, 0, {200}, {200}}, program).count(), 1 + 2);
}

TEST(Communication, ABusyEndIsSharedByItsMessages) {
  // The message has 100 bytes, but its receiver moves 400 in the same exchange.
  const Program program = groups_of(1, 2, true);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 1, 0, {100}, {400}}, program).count(), 1 + 4);
}

// The hub is a rank of group 0. Group 1 is its neighbor in the encoder; group 2 is in the next stage.
TEST(Communication, AHubSendsWithOneRankToEachOfTheOthers) {
  Program program = groups_of(2, 3, false);
  program.stages.resize(2);
  program.groups[2].stage = 1;
  program.hub = 0;
  // 100 bytes go to each of two ranks, without a gather afterwards: 1 + 200 / 100 in the same node, 10 + 200
  // / 10 to another node. Messages to the hub are sent once.
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 1, 0, {100}, {200}}, program).count(), 1 + 2);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 2, 0, {100}, {200}}, program).count(), 10 + 20);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {2, 0, 0, {100}, {100}}, program).count(), 10 + 10);
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {1, 0, 0, {100}, {100}}, program).count(), 1 + 1);
  // Without a hub both ranks carry 50 bytes, 1 + 0.5, and gather them in one step of 1 + 0.5.
  program.hub = -1;
  EXPECT_DOUBLE_EQ(message_time(small_cluster(), {0, 1, 0, {100}, {100}}, program).count(), 1.5 + 1.5);
}

TEST(Communication, AllReduceOnOneNodeIsARing) {
  const Program program = groups_of(1, 4, true);
  EXPECT_DOUBLE_EQ(all_reduce_time(small_cluster(), over({0, 1, 2, 3}, 200), program).count(), 9);
}

TEST(Communication, AllReduceWithOneParticipantANodeIsARingBetweenNodes) {
  // 2 * 1 steps of 10 s + 200 / 2 / 10 s.
  const Program program = groups_of(4, 2, true);
  EXPECT_DOUBLE_EQ(all_reduce_time(small_cluster(), over({0, 1}, 200), program).count(), 40);
}

TEST(Communication, AllReduceIsHierarchicalOtherwise) {
  // 2 nodes with 4 ranks each. Inside: 3 steps of 1 + 200 / 4 / 100 = 4.5 s, twice. Between: shares of 50
  // bytes, 2 * 1 steps of 10 + 50 / 2 / 10 = 25 s.
  const Program program = groups_of(1, 8, true);
  EXPECT_DOUBLE_EQ(all_reduce_time(small_cluster(), over({0, 1, 2, 3, 4, 5, 6, 7}, 200), program).count(),
                   34);
}

TEST(Communication, UnequalNodesCountTheFullestInsideAndTheEmptiestBetween) {
  // Ranks 2 and 3 are on node 0, rank 4 on node 1. Inside: 1 step of 1 + 200 / 2 / 100 = 2 s, twice. Between:
  // one share of 200 bytes, 2 * 1 steps of 10 + 200 / 2 / 10 = 40 s.
  const Program program = groups_of(1, 8, true);
  EXPECT_DOUBLE_EQ(all_reduce_time(small_cluster(), over({2, 3, 4}, 200), program).count(), 44);
}

// A group of 2 ranks with two copies of a stage of tp 1 takes part like two groups of one rank: in each phase
// the ranks carry the same bytes over the same links.
TEST(Communication, CopiesInAGroupAreParticipants) {
  ClusterSpec cluster = small_cluster();
  const Program groups = groups_of(1, 8, true);
  const Program pairs = groups_of(2, 4, true);
  for (const double node_ring : {0.0, 50.0}) {
    cluster.software.node_ring_bandwidth_bytes_per_s = node_ring;
    Collective copies = over({0, 1, 2, 3}, 200);
    copies.copies = 2;
    const Collective all = over({0, 1, 2, 3, 4, 5, 6, 7}, 200);
    EXPECT_EQ(all_reduce_phases(cluster, copies, pairs), all_reduce_phases(cluster, all, groups));
    EXPECT_EQ(all_reduce_time(cluster, copies, pairs), all_reduce_time(cluster, all, groups));
    EXPECT_NE(all_reduce_phases(cluster, copies, pairs),
              all_reduce_phases(cluster, over({0, 1, 2, 3}, 200), pairs));
  }
}

TEST(Communication, CopiesGatherInsideTheNode) {
  // 3 steps of 1 s + 100 bytes / 100 bytes per second.
  EXPECT_DOUBLE_EQ(copies_gather_time(small_cluster(), 4, 100).count(), 6);
}

TEST(Communication, OneParticipantHasNothingToReduce) {
  EXPECT_EQ(all_reduce_time(small_cluster(), over({0}, 200), groups_of(1, 1, true)).count(), 0);
}

TEST(Communication, HierarchyIsNeverSlowerThanARingOverTheSlowLink) {
  Random random(5);
  for (int i = 0; i < 1000; ++i) {
    ClusterSpec cluster = small_cluster();
    cluster.gpus_per_node = 1 + static_cast<int>(random.below(8));
    cluster.intra_node = {Seconds(random.uniform()), 10 + 100 * random.uniform()};
    cluster.inter_node = {Seconds(1 + random.uniform()), 1 + 9 * random.uniform()};
    const int ranks = cluster.gpus_per_node * (1 + static_cast<int>(random.below(16)));
    Collective all{{}, Bytes{static_cast<std::int64_t>(random.below(1000000))}};
    for (int r = 0; r < ranks; ++r) all.groups.push_back(r);
    const Seconds flat = ring_all_reduce(cluster.inter_node, ranks, static_cast<double>(all.bytes.count));
    EXPECT_LE(all_reduce_time(cluster, all, groups_of(1, ranks, true)).count(), flat.count() * (1 + 1e-12));
  }
}

}  // namespace communication_test
}  // namespace dflop
