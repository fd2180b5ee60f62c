// The effect of a plan's placement on its run.
#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "costmodel/analytic/communication.hpp"
#include "sim/engine.hpp"
#include "tests/core/fixtures.hpp"

namespace dflop::testing {
namespace placement_test {

/// 10 ns forward and 20 ns backward for any work; links have only latency: 1 ns inside a node and 5 ns
/// between nodes.
class LatencyCosts final : public SumCostModel {
 public:
  explicit LatencyCosts(ClusterSpec cluster) : cluster_(std::move(cluster)) {
    cluster_.intra_node = {Seconds(1e-9), 1e30};
    cluster_.inter_node = {Seconds(5e-9), 1e30};
  }

  Seconds compute(Op op, const Stage&, const Work&) const override {
    return Seconds(op == Op::forward ? 10e-9 : 20e-9);
  }
  Seconds message(const Message& message, const Program& program) const override {
    return message_time(cluster_, message, program);
  }
  Seconds all_reduce(const Collective& collective, const Program& program) const override {
    return all_reduce_time(cluster_, collective, program);
  }
  Seconds optimizer_step(const Stage&) const override { return Seconds(0); }
  ModelState model_state(const Stage&) const override { return {}; }
  Bytes activation(const Stage&, const Work&) const override { return {}; }
  Bytes workspace(Op, const Stage&, const Work&) const override { return {}; }

 private:
  ClusterSpec cluster_;
};

// 1F1B of 2 microbatches on 2 stages, with messages of c: stage 1 has F0 10+c to 20+c, B0 to 40+c, F1 to
// 50+c, B1 to 70+c. Stage 0 has B0 40+2c to 60+2c and B1 70+2c to 90+2c, then reduces its gradients in R.
//
// 8 dp ranks of 4 GPUs on nodes of 8. Placed by stage c = 5, and the 8 ranks of a reduction are 2 on each of
// 4 nodes: 1 in each node, 2 * (4 - 1) * 5 between them, 1 in each node, R = 32. Placed by replica c = 1, and
// they are on 8 nodes: R = 2 * (8 - 1) * 5 = 70.
TEST(Placement, OfAUniformPlanChangesMessagesAndReductions) {
  Plan plan;
  plan.layout = Layout::uniform;
  plan.encoder = {4, 2, 8, {4, 0}};
  plan.llm = {4, 2, 8, {1, 5}};
  plan.microbatches = 2;
  plan.gbs = 16;
  const LatencyCosts costs(tiny_cluster(8, 8));
  Random random(4);
  const Batch batch = random_batch(random, 16);
  const Assignment assignment = random_assignment(random, plan, 16);
  const auto makespan = [&](RankOrder placement) {
    plan.placement = placement;
    const Program program = lower(plan, tiny_model(), batch, assignment);
    return simulate(program, costs.price(program), Detail::usage).makespan.count();
  };
  EXPECT_EQ(makespan(RankOrder::stage_major), 90 + 2 * 5 + 32);
  EXPECT_EQ(makespan(RankOrder::replica_major), 90 + 2 * 1 + 70);
}

}  // namespace placement_test
}  // namespace dflop::testing
