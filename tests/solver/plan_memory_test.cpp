#include "solver/plan_problem/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/order/pipeline_order.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace plan_memory_test {

/// Memory of which no two parts are alike: stages with embedding or head hold more, and every op needs its
/// own.
class UnevenMemory final : public testing::LinearCostModel {
 public:
  ModelState model_state(const Stage& stage) const override {
    return {{100 * stage.encoder_layers + 130 * stage.llm_layers}, {stage.embedding ? 70 : 0}, {}};
  }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return {stage.encoder_layers * work.encoder.tokens + stage.llm_layers * work.llm.tokens};
  }
  Bytes split_activation(const Stage& stage, const Work& work) const override {
    return {3 * activation(stage, work).count + 11};
  }
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override {
    return {(static_cast<int>(op) + 1) * 5 + (stage.head ? 9 * work.llm.tokens : 0)};
  }
};

TEST(PlanMemory, IsThatOfARun) {
  Random random(3);
  const ModelSpec model = testing::small_model(4, 6);
  const UnevenMemory cost;
  const SimExecutor executor;
  const ClusterSpec cluster = testing::small_cluster(2, 4, 0);
  const auto pick = [&](int most) { return static_cast<int>(1 + random.below(most)); };
  int plans = 0;
  for (int round = 0; round < 300; ++round) {
    Plan plan = testing::disaggregated_plan(model, 0, pick(4), pick(4), pick(6));
    plan.encoder = {1, pick(3), plan.encoder.dp, {}};
    plan.llm = {2, pick(3), plan.llm.dp, {}};
    plan.order = pipeline_orders()[random.below(pipeline_orders().size())].kind;
    plan.chunks = traits(plan.order).has_chunks() ? 2 : 1;
    if (traits(plan.order).in_rounds) plan.microbatches *= plan.llm.pp;
    if (!memory_needs_no_run(plan)) continue;
    const int stages = plan.llm.pp * plan.chunks;
    plan.encoder.layers = split_layers(4, plan.encoder.pp);
    plan.llm.layers = split_layers(6, stages);
    if (round % 2 == 1) {  // uniform: 10 layers in one list, of which the first 4 are the encoder's
      plan.layout = Layout::uniform;
      plan.encoder = plan.llm;
      plan.encoder.layers.clear();
      plan.llm.layers.clear();
      int encoder_left = 4;
      for (const int layers : split_layers(10, stages)) {
        const int of_encoder = std::min(layers, encoder_left);
        plan.encoder.layers.push_back(of_encoder);
        plan.llm.layers.push_back(layers - of_encoder);
        encoder_left -= of_encoder;
      }
    }
    plan.gbs = plan.bins() + pick(20);
    const Batch batch = testing::small_random_batch(random, plan.gbs);
    const Assignment assignment = random_assignment(batch.size(), plan, 1, round);
    const Timeline timeline =
        executor.run(make_iteration({model, cluster, cost}, plan, batch, assignment), Detail::usage);
    EXPECT_EQ(peak_memory(plan, model, cost, batch, assignment), peak_memory(timeline)) << describe(plan);
    ++plans;
  }
  EXPECT_GT(plans, 100);
}

TEST(PlanMemory, NeedsARunWhereTheOrderDependsOnDurations) {
  Plan plan;
  EXPECT_TRUE(memory_needs_no_run(plan));
  plan.order = OrderKind::eager_1f1b;
  EXPECT_FALSE(memory_needs_no_run(plan));
  plan.order = OrderKind::one_f_one_b;
  plan.layout = Layout::uniform;
  EXPECT_TRUE(memory_needs_no_run(plan));
  plan.layout = Layout::colocated;
  EXPECT_FALSE(memory_needs_no_run(plan));
}

}  // namespace plan_memory_test
}  // namespace dflop
