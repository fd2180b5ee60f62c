#include "solver/plan_problem/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/iteration/iteration.hpp"
#include "core/order/pipeline_order.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/core/random_plan.hpp"
#include "tests/rounds.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace plan_memory_test {

/// Memory whose parts all differ: stages with embedding or head hold more, and every op needs a different
/// workspace.
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

/// A random plan, with a layout and an order that fit each other, and a batch.
struct RandomRun {
  ModelSpec model = testing::small_model(4, 6);
  UnevenMemory cost;
  ClusterSpec cluster = testing::small_cluster(64, 8, 0);
  Plan plan;
  Batch batch;

  explicit RandomRun(Random& random) {
    while (true) {
      const OrderKind order = pipeline_orders()[random.below(pipeline_orders().size())].kind;
      const Layout layout = all_of<Layout>()[random.below(kNames<Layout>.size())];
      if (!fits(traits(order), layout)) continue;
      plan = testing::random_plan(random, order, layout);
      break;
    }
    batch = testing::small_random_batch(random, plan.gbs);
  }
  RandomRun(const RandomRun&) = delete;

  PipelineOrder order(const Assignment& assignment, Bytes usable) const {
    return order_for_batch(plan, model, cost, batch, assignment, usable);
  }
  Timeline run(const Assignment& assignment, const PipelineOrder& order) const {
    return SimExecutor().run(make_iteration({model, cluster, cost}, plan, batch, assignment, order),
                             Detail::usage);
  }
  std::string name() const { return std::string(to_string(plan.layout)) + " " + describe(plan); }
};

TEST(PlanMemory, EqualsTheMemoryOfARun) {
  Random random(3);
  int without_a_run = 0;
  for (int round = 0; round < 400; ++round) {
    const RandomRun c(random);
    const Assignment assignment = random_assignment(c.batch.size(), c.plan, 1, round);
    const PipelineOrder order = c.order(assignment, Bytes{20'000});
    const Timeline timeline = c.run(assignment, order);
    const MemoryPeak peak = memory_peak(c.plan, c.model, c.cost, c.batch, assignment, order);
    ASSERT_EQ(peak.bytes, peak_memory(timeline)) << c.name();
    const auto fullest = std::ranges::find(timeline.groups, peak.rank, &GroupUsage::first_rank);
    ASSERT_NE(fullest, timeline.groups.end()) << c.name();
    EXPECT_EQ(most_of(gpu_memory(timeline), timeline, *fullest), peak.bytes) << c.name();
    if (!memory_needs_no_run(c.plan)) continue;
    ++without_a_run;
    EXPECT_EQ(peak_memory(c.plan, c.model, c.cost, c.batch, assignment), peak.bytes) << c.name();
  }
  EXPECT_GT(without_a_run, 100);
  EXPECT_LT(without_a_run, 400);
}

/// A token of a picture takes a byte per layer, a token of a sound three bytes on the stage with the
/// connectors.
class HeardMemory final : public testing::LinearCostModel {
 public:
  Bytes activation(const Stage& stage, const Work& work) const override {
    const std::int64_t sounds = stage.connector ? 3 * work.encoder.second.tokens : 0;
    return {stage.encoder_layers * work.encoder.tokens + sounds + stage.llm_layers * work.llm.tokens};
  }
};

/// Each dp rank of the encoder may hold one sequence more than its part, of either encoder. The largest
/// picture, of 10 tokens, takes 20 bytes on each stage of two layers. The largest sound, of 12, takes none on
/// the first stage and 36 on the second. There is one microbatch, and all parameters are free.
TEST(PlanMemory, ReservesTheLargestSequenceOfEachEncoder) {
  const HeardMemory cost;
  ModelSpec model = testing::small_model(4, 1);
  model.connector = {{8, 8}, 1};
  model.second = SecondEncoder{model.encoder, model.connector};
  Plan plan = testing::disaggregated_plan(model, 3, 2, 1, 1);
  plan.encoder.pp = 2;
  plan.encoder.layers = {2, 2};
  Batch batch(3, testing::small_sample(1, 20));
  batch[2].encoder_sequences = {{1, 12, 144, true}};
  ScheduleRequest request{batch, plan, model, cost};
  request.limits.memory = Bytes{60};
  const auto most = [&](const std::string& what) {
    for (const Cap& cap : plan_caps(request).caps) {
      if (cap.what == what) return cap.most;
    }
    return 0.0;
  };
  EXPECT_EQ(most("bytes of activations on stage 0"), 60 - 20);
  EXPECT_EQ(most("bytes of activations on stage 1"), 60 - 36);
}

TEST(PlanMemory, NeedsARunIfTheOrderDependsOnDurations) {
  Plan plan;
  EXPECT_TRUE(memory_needs_no_run(plan));
  plan.order = OrderKind::eager_1f1b;
  EXPECT_FALSE(memory_needs_no_run(plan));
}

// Caps only approximate the need of a plan, but the result of a scheduler must still fit its memory. Memory
// sizes are slightly below or above the need of LPT's microbatches.
TEST(PlanMemory, NoScheduleNeedsMoreThanItsMemory) {
  Random random(7);
  int feasible = 0;
  int infeasible = 0;
  for (int round = 0; round < testing::rounds(40); ++round) {
    const RandomRun c(random);
    ScheduleRequest request{c.batch, c.plan, c.model, c.cost, 1, static_cast<std::uint64_t>(round)};
    const Assignment free = make_scheduler("lpt")->schedule(request).assignment;
    const double needed = static_cast<double>(peak_memory(c.run(free, c.order(free, Bytes{1 << 30}))).count);
    const Bytes usable{static_cast<std::int64_t>(needed * (0.85 + 0.3 * random.uniform()))};
    for (const Method& method : methods()) {
      request.limits = {.memory = usable, .steps = 40, .node_budget = 3};
      if (random.below(2) == 0) request.limits.objective = all_of<Objective>()[random.below(3)];
      const auto fits = [&](const Assignment& assignment) {
        return peak_memory(c.run(assignment, c.order(assignment, usable))) <= usable;
      };
      const std::string what = std::string(method.name) + " " + c.name() + " round " + std::to_string(round);
      request.improved = [&](const ScheduleResult& better) { EXPECT_TRUE(fits(better.assignment)) << what; };
      const ScheduleResult result = make_scheduler(method.name)->schedule(request);
      if (result.feasible()) {
        EXPECT_TRUE(fits(result.assignment)) << what;
        EXPECT_LE(result.bound, result.value) << what;
        ++feasible;
      } else {
        EXPECT_NE(result.reason, "") << what;
        EXPECT_TRUE(result.assignment.bin.empty()) << what;
        ++infeasible;
      }
    }
  }
  EXPECT_GT(feasible, infeasible / 2);
  EXPECT_GT(infeasible, 0);
}

// Such an order depends on the durations of an assignment and on the GPU's memory. The search uses the order
// of LPT's assignment.
TEST(PlanMemory, SearchesAreNotWorseThanLptIfTheOrderDependsOnTheAssignment) {
  Random random(11);
  int better = 0;
  int rounds = 0;
  while (rounds < testing::rounds(60)) {
    const RandomRun c(random);
    if (!reads_tables(c.plan.order)) continue;
    ++rounds;
    ScheduleRequest request{c.batch, c.plan, c.model, c.cost, 1, static_cast<std::uint64_t>(rounds)};
    const Assignment free = make_scheduler("lpt")->schedule(request).assignment;
    const double needed = static_cast<double>(peak_memory(c.run(free, c.order(free, Bytes{1 << 30}))).count);
    request.limits.usable_memory = Bytes{static_cast<std::int64_t>(needed * (0.6 + 0.6 * random.uniform()))};
    request.limits.objective = Objective::makespan;
    request.limits.steps = 200;
    const auto makespan = [&](std::string_view name) {
      const Assignment assignment = make_scheduler(name)->schedule(request).assignment;
      return c.run(assignment, c.order(assignment, *request.limits.usable_memory)).makespan;
    };
    const Nanoseconds lpt = makespan("lpt");
    const Nanoseconds search = makespan("makespan");
    // Schedulers see a mean over the ranks that share an encoder. Shares of equally many samples are far from
    // it.
    const double slack = c.plan.share_rule == ShareRule::count ? 1.1 : 1.02;
    EXPECT_LE(search.count(), slack * static_cast<double>(lpt.count())) << c.name() << " round " << rounds;
    if (search < lpt) ++better;
    // Other methods keep their own assignment, even if another one is faster.
    EXPECT_EQ(make_scheduler("random")->schedule(request).assignment.bin,
              random_assignment(c.batch.size(), c.plan, request.seed, request.iteration).bin);
  }
  EXPECT_GT(better, 0);
}

// One stage without state: gpipe holds all microbatches, 60 tokens of a GiB each, for any assignment.
TEST(PlanMemory, ReportsNeededMemoryAndItsRank) {
  testing::LinearCostModel cost;
  cost.token_bytes = std::int64_t{1} << 30;
  const ModelSpec model = testing::small_model(1, 1);
  Plan plan = testing::disaggregated_plan(model, 3, 1, 1, 2);
  plan.layout = Layout::uniform;
  plan.order = OrderKind::gpipe;
  const Batch batch(3, testing::small_sample(0, 20));
  ScheduleRequest request{batch, plan, model, cost};
  request.limits.memory = Bytes{std::int64_t{60} << 30};
  EXPECT_TRUE(make_scheduler("lpt")->schedule(request).feasible());
  request.limits.memory = Bytes{std::int64_t{59} << 30};
  const ScheduleResult none = make_scheduler("lpt")->schedule(request);
  EXPECT_EQ(none.status, ScheduleStatus::infeasible);
  EXPECT_NE(none.reason.find("; the microbatches of lpt need 60.0 GiB on rank 0, 59.0 GiB are usable"),
            std::string::npos)
      << none.reason;
}

}  // namespace plan_memory_test
}  // namespace dflop
