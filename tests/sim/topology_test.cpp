// The links of a cluster: a transfer without others takes the cost model's time; concurrent transfers share.
#include "sim/network/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/support/random.hpp"
#include "costmodel/analytic/communication.hpp"
#include "sim/network/flows.hpp"

namespace dflop::testing {
namespace topology_test {

/// 1 GB/s inside a node with 10 ns, 0.25 GB/s between nodes with 40 ns: bytes take 1 or 4 ns.
ClusterSpec cluster(int nodes, int gpus_per_node) {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus_per_node;
  cluster.intra_node = {Seconds(10e-9), 1e9};
  cluster.inter_node = {Seconds(40e-9), 0.25e9};
  return cluster;
}

/// Groups of `tp` consecutive ranks, all of one stage.
Program groups_of(int tp, int groups, bool sequence_parallel = true) {
  Program program;
  program.stages.resize(1);
  program.stages[0].tp = tp;
  program.stages[0].sequence_parallel = sequence_parallel;
  for (int g = 0; g < groups; ++g) program.groups.push_back({g * tp, tp, 0, g, 0, 0});
  return program;
}

/// Returns when the transfers end if all start at 0.
std::vector<std::int64_t> ends(const Program& program, const ClusterSpec& cluster,
                               const std::vector<double>& factor = {}) {
  const Network network = cluster_network(program, cluster, factor);
  Flows flows(network);
  const std::size_t transfers = program.messages.size() + program.collectives.size();
  for (std::size_t t = 0; t < transfers; ++t) flows.start(static_cast<std::int32_t>(t), Nanoseconds(0));
  std::vector<std::int64_t> end(transfers);
  while (!flows.idle()) {
    const Nanoseconds now = flows.next_time();
    if (const auto transfer = flows.advance()) end[*transfer] = now.count();
  }
  return end;
}

using Ends = std::vector<std::int64_t>;

// Groups 0 and 2 are on the same GPUs, and so are 1 and 3: messages between the two pairs share the ports of
// each GPU. By itself, a message with 100 bytes on each of tp ports takes 10 + 100 ns. A copy of 100 bytes on
// each GPU, read and written at 1 byte per ns, takes 200 ns, in parallel to all else.
TEST(ClusterNetwork, GroupsOnSharedGpusShareTheirPorts) {
  for (const int tp : {1, 2}) {
    ClusterSpec node = cluster(1, 4);
    node.gpu.memory_bandwidth_bytes_per_s = 1e9;
    node.software.memory_efficiency = 1;
    Program program = groups_of(tp, 4);
    const Bytes bytes{100 * tp};
    program.messages = {{0, 1, 0, bytes, bytes}, {2, 3, 0, bytes, bytes}, {1, 3, 0, bytes, bytes}};
    program.shared_gpus = 2 * tp;
    EXPECT_EQ(ends(program, node), (Ends{210, 210, 200}));
    EXPECT_EQ(ends(program, node, {1, 1, 0.5, 1}), (Ends{410, 410, 200}));  // group 2's and so group 0's
    program.messages.resize(1);
    EXPECT_EQ(ends(program, node), (Ends{110}));
    program.shared_gpus = 0;
    program.messages.push_back({2, 3, 0, bytes, bytes});
    EXPECT_EQ(ends(program, cluster(1, 8)), (Ends{110, 110}));
  }
}

TEST(ClusterNetwork, ASingleMessageTakesTheCostModelsTime) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const int tp = 1 << random.below(3);
    Program program = groups_of(tp, 8);
    const auto a = static_cast<std::int32_t>(random.below(8));
    const auto b = static_cast<std::int32_t>(random.below(8));
    if (a == b) continue;
    const Bytes bytes{static_cast<std::int64_t>(random.below(1'000'000))};
    program.messages = {{a, b, 0, bytes, bytes}};
    const ClusterSpec on = cluster(8, 4);
    const Nanoseconds expected = to_nanoseconds(message_time(on, program.messages[0], program));
    // The sum may be rounded once, or latency and movement separately.
    EXPECT_NEAR(static_cast<double>(ends(program, on)[0]), static_cast<double>(expected.count()), 1);
  }
}

TEST(ClusterNetwork, ASingleCollectiveTakesTheCostModelsTime) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    Program program = groups_of(1 << random.below(2), 16);
    Collective collective{{}, Bytes{static_cast<std::int64_t>(random.below(1'000'000))}};
    for (std::int32_t g = 0; g < 16; ++g) {
      if (random.below(2) == 0) collective.groups.push_back(g);
    }
    if (collective.groups.empty()) continue;
    program.collectives = {collective};
    ClusterSpec on = cluster(8, 4);
    on.collectives = static_cast<CollectiveAlgorithm>(random.below(kNames<CollectiveAlgorithm>.size()));
    const Seconds expected = all_reduce_time(on, collective, program);
    // Each of at most three phases rounds once.
    EXPECT_NEAR(static_cast<double>(ends(program, on)[0]), expected.count() * 1e9, 2);
  }
}

// Group 0 sends 1000 bytes to each of groups 1 and 2 on its node: its port carries 2000 in 10 + 2000 ns.
TEST(ClusterNetwork, MessagesShareThePortOfTheirSource) {
  Program program = groups_of(1, 4);
  program.messages = {{0, 1, 0, Bytes{1000}, Bytes{1000}}, {0, 2, 0, Bytes{1000}, Bytes{1000}}};
  EXPECT_EQ(ends(program, cluster(1, 4)), (Ends{2010, 2010}));
}

// The hub, one of two ranks of group 0, sends 1000 bytes to each of the two ranks of groups 1 and 2: 4000
// through its own port in 10 + 4000 ns, although its group has two ports. By itself the first message takes
// the cost model's time.
TEST(ClusterNetwork, AHubHasOnePort) {
  Program program = groups_of(2, 4);
  program.stages.resize(2);
  for (const std::size_t g : {1, 2, 3}) program.groups[g].stage = 1;
  program.hub = 0;
  program.messages = {{0, 1, 0, Bytes{1000}, Bytes{4000}}, {0, 2, 0, Bytes{1000}, Bytes{4000}}};
  const ClusterSpec on = cluster(1, 8);
  EXPECT_EQ(ends(program, on), (Ends{4010, 4010}));
  program.messages = {{0, 1, 0, Bytes{1000}, Bytes{2000}}};
  EXPECT_EQ(ends(program, on), (Ends{2010}));
  EXPECT_EQ(to_nanoseconds(message_time(on, program.messages[0], program)).count(), 2010);
  // Messages from groups 1 and 2, one rank each, arrive through the same port: 2000 ns.
  program.messages = {{1, 0, 0, Bytes{1000}, Bytes{2000}}, {2, 0, 0, Bytes{1000}, Bytes{2000}}};
  EXPECT_EQ(ends(program, on), (Ends{2010, 2010}));
}

// One message to a rank of the same node and one to a rank of another: two ports, 10 + 1000 and 40 + 4000 ns.
TEST(ClusterNetwork, PortAndCardAreTwoLinks) {
  Program program = groups_of(1, 4);
  program.messages = {{0, 1, 0, Bytes{1000}, Bytes{1000}}, {0, 2, 0, Bytes{1000}, Bytes{1000}}};
  EXPECT_EQ(ends(program, cluster(2, 2)), (Ends{1010, 4040}));
}

// Two nodes of two ranks under each leaf; three of the four ranks of leaf 0 send 1000 bytes to leaf 1. The
// network cards move 0.25 GB/s each, and the leaf's link 4 x 0.25 / 2 = 0.5 GB/s for all three: 3000 bytes
// take 6000 ns.
TEST(ClusterNetwork, AnOversubscribedLeafIsShared) {
  Program program = groups_of(1, 8);
  for (std::int32_t g = 0; g < 3; ++g) program.messages.push_back({g, g + 4, 0, Bytes{1000}, Bytes{1000}});
  ClusterSpec on = cluster(4, 2);
  EXPECT_EQ(ends(program, on), (Ends{4040, 4040, 4040}));
  on.leaf = {2, 2};
  EXPECT_EQ(ends(program, on), (Ends{6040, 6040, 6040}));
  on.leaf = {4, 2};  // all nodes under one leaf
  EXPECT_EQ(ends(program, on), (Ends{4040, 4040, 4040}));
}

TEST(ClusterNetwork, ADegradedGroupIsSlower) {
  Program program = groups_of(1, 4);
  program.messages = {{0, 1, 0, Bytes{1000}, Bytes{1000}}, {2, 3, 0, Bytes{1000}, Bytes{1000}}};
  EXPECT_EQ(ends(program, cluster(1, 4), {1, 0.5, 1, 1}), (Ends{2010, 1010}));
}

// Four ranks on one node: 2 * 3 steps of 10 ns; 2 * 3/4 * 1000 bytes through each port. A message from one of
// them to a rank outside the collective starts at the same time and shares its port: 1500 and 1000 bytes.
TEST(ClusterNetwork, CollectivesShareWithMessages) {
  Program program = groups_of(1, 5);
  program.messages = {{0, 4, 0, Bytes{1000}, Bytes{1000}}};
  program.collectives = {{{0, 1, 2, 3}, Bytes{1000}}};
  // The message moves 50 bytes before the collective starts at 60, and 950 at half rate: until 60 + 1900. By
  // then the collective has moved 950 of 1500.
  EXPECT_EQ(ends(program, cluster(1, 5)), (Ends{1960, 1960 + 550}));
}

// 2 nodes of 2, B = 1000:
//   ring          6 steps of 40 ns; 1500 bytes inside, 750 through each card (4 ns per byte)
//   tree          2 of 10 and 2 of 40; 2000 inside, 1000 through each card
//   hierarchical  10 + 500, then 2 of 40 + 500 through each card, then 10 + 500
TEST(ClusterNetwork, AlgorithmsByHand) {
  Program program = groups_of(1, 4);
  program.collectives = {{{0, 1, 2, 3}, Bytes{1000}}};
  ClusterSpec on = cluster(2, 2);
  const auto time = [&](CollectiveAlgorithm algorithm) {
    on.collectives = algorithm;
    return ends(program, on)[0];
  };
  EXPECT_EQ(time(CollectiveAlgorithm::ring), 240 + 3000);
  EXPECT_EQ(time(CollectiveAlgorithm::tree), 100 + 4000);
  EXPECT_EQ(time(CollectiveAlgorithm::hierarchical), 510 + 80 + 2000 + 510);
  EXPECT_EQ(time(CollectiveAlgorithm::fastest), 3100);
}

}  // namespace topology_test
}  // namespace dflop::testing
