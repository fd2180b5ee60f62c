// One encoder rank, the hub, forwards all messages between encoder and LLM: what runs, when, and in how much
// memory.
#include <gtest/gtest.h>

#include "core/iteration/iteration.hpp"
#include "sim/engine.hpp"
#include "tests/core/fixtures.hpp"

namespace dflop::testing {
namespace hub_test {

/// Forwards take 10 ns and backwards 20. Messages between dp ranks of a stage take 3 ns, others 5. Every
/// computation needs a workspace of 7 bytes.
class PlainCosts final : public SumCostModel {
 public:
  Seconds compute(Op op, const Stage&, const Work&) const override {
    return Seconds(op == Op::backward ? 20e-9 : 10e-9);
  }
  Seconds message(const Message& message, const Program& program) const override {
    return Seconds(is_gathered(message, program) ? 3e-9 : 5e-9);
  }
  Seconds all_reduce(const Collective&, const Program&) const override { return Seconds(0); }
  Seconds optimizer_step(const Stage&) const override { return Seconds(0); }
  ModelState model_state(const Stage&) const override { return {}; }
  Bytes activation(const Stage&, const Work&) const override { return {}; }
  Bytes workspace(Op, const Stage&, const Work&) const override { return Bytes{7}; }
};

/// One microbatch over two dp ranks of the encoder and two dp ranks, of tp 2, of the LLM. Sample 0 (LLM dp
/// rank 0) has 3 tiles and 30 output tokens, sample 1 (rank 1) has 1 tile and 10. Encoder rank 0 gets the
/// first two tiles.
struct Hub : ::testing::Test {
  Plan plan = disaggregated_plan({1, 1, 2, {4}}, {2, 1, 2, {6}}, 1, 2);
  ModelSpec model = tiny_model();
  ClusterSpec cluster = tiny_cluster();
  PlainCosts costs;
  Batch batch = {{"a", Modality::image, {{3, 16, 256}}, 30, 40},
                 {"b", Modality::image, {{1, 16, 256}}, 10, 12}};

  Iteration made() { return make_iteration({model, cluster, costs}, plan, batch, {1, 2, {0, 1}}); }

  Hub() { plan.reshard = Reshard::hub; }
};

/// Group 0 is the hub, group 1 the other dp rank of the encoder; groups 2 and 3 are the LLM's dp ranks.
TEST_F(Hub, IsAnEndOfEveryMessage) {
  const Program program = made().program;
  EXPECT_EQ(program.hub, 0);
  ASSERT_EQ(program.messages.size(), 6u);
  // A token is 128 wide, 2 bytes each. In each LLM group both tp ranks get a copy: 2 x (30 + 10) tokens go
  // through the hub's port. 30 + 10 come back, from one rank of each group. 10 + 10 tokens come from the
  // encoder's other dp rank, and as many go back to its only rank.
  const auto check = [&](int m, int source, int destination, std::int64_t tokens, std::int64_t port_tokens) {
    EXPECT_EQ(program.messages[m].source, source) << m;
    EXPECT_EQ(program.messages[m].destination, destination) << m;
    EXPECT_EQ(program.messages[m].bytes.count, tokens * 256) << m;
    EXPECT_EQ(program.messages[m].port_bytes.count, port_tokens * 256) << m;
  };
  check(0, 0, 2, 30, 80);
  check(1, 2, 0, 30, 40);
  check(2, 0, 3, 10, 80);
  check(3, 3, 0, 10, 40);
  check(4, 1, 0, 20, 20);
  check(5, 0, 1, 20, 20);
}

TEST_F(Hub, GathersBeforeItSendsAndPassesGradientsOnBeforeItsBackward) {
  const Program program = made().program;
  const auto of = [&](std::size_t group) {
    std::vector<std::pair<Op, std::int32_t>> list;
    for (const Instruction& i : program.instructions_of(program.groups[group])) {
      if (is_collective(i.op) || i.op == Op::optimizer_step) continue;
      list.emplace_back(i.op, is_compute(i.op) ? -1 : i.index);
    }
    return list;
  };
  using List = std::vector<std::pair<Op, std::int32_t>>;
  EXPECT_EQ(of(0), (List{{Op::forward, -1},
                         {Op::reshard_receive, 4},
                         {Op::reshard_send, 0},
                         {Op::reshard_send, 2},
                         {Op::reshard_receive, 1},
                         {Op::reshard_receive, 3},
                         {Op::reshard_send, 5},
                         {Op::backward, -1}}));
  EXPECT_EQ(of(1),
            (List{{Op::forward, -1}, {Op::reshard_send, 4}, {Op::reshard_receive, 5}, {Op::backward, -1}}));
  EXPECT_EQ(of(3),
            (List{{Op::reshard_receive, 2}, {Op::forward, -1}, {Op::backward, -1}, {Op::reshard_send, 3}}));
}

// The encoder's forwards end at 10. The hub has gathered their outputs at 13, and they reach the LLM at 18,
// which takes until 48. Gradients reach the hub at 53, whose backward ends at 73, and the other rank at 56:
// 76. Without a hub, outputs reach the LLM at 15, its backward ends at 45, and gradients arrive at 50: 70.
TEST_F(Hub, AddsAHopToEveryTransfer) {
  const SimExecutor executor;
  EXPECT_EQ(executor.run(made(), Detail::usage).makespan.count(), 76);
  plan.reshard = Reshard::direct;
  EXPECT_EQ(executor.run(made(), Detail::usage).makespan.count(), 70);
}

// The hub holds 40 output tokens of 256 bytes, and as many gradients, on top of the 7 bytes of every
// computation.
TEST_F(Hub, HoldsTheTensorsThatItForwards) {
  const Iteration iteration = made();
  for (std::size_t g = 0; g < 4; ++g) {
    const Group& group = iteration.program.groups[g];
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      if (!is_compute(iteration.program.instructions[i].op)) continue;
      EXPECT_EQ(iteration.costs.workspace_of(i).count, g == 0 ? 40 * 256 + 7 : 7) << g;
    }
  }
}

// Orders that read tables see the messages over the boundary, 5 ns, but not the hub's gathering.
TEST_F(Hub, ItsGatheringIsNoMessageOfABoundary) {
  const Iteration iteration = made();
  const OrderTables tables = order_tables(plan, iteration.program, iteration.costs, Bytes{1 << 20});
  EXPECT_EQ(tables.times.message[0].count(), 5);
}

}  // namespace hub_test
}  // namespace dflop::testing
