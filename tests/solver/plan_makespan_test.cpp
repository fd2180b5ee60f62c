#include "solver/plan_problem/makespan.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "costmodel/analytic/analytic.hpp"
#include "costmodel/sample_costs.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/costmodel/fixtures.hpp"
#include "tests/solver/threads.hpp"

namespace dflop::testing {
namespace plan_makespan_test {

struct Batches {
  ClusterSpec cluster = tiny_cluster();
  Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 3, 2, {2, 2, 2}}, 4, 64);
  ModelSpec model = tiny_model();
  Batch first;
  Batch second;

  Batches() {
    cluster.gpu = fixtures::a100_cluster().gpu;
    cluster.software = fixtures::a100_software();
    cluster.intra_node = {Seconds(1e-6), 1e10};
    cluster.inter_node = {Seconds(3e-6), 2e9};
    Random random(5);
    first = random_batch(random, 64);
    second = random_batch(random, 64);
  }
};

TEST(PlanMakespan, IsAProblemOfTheMakespanWithItsBounds) {
  const Batches b;
  const AnalyticCostModel cost(b.model, b.cluster);
  PlanMakespan makespan({b.first, b.plan, b.model, cost});
  AssignmentProblem problem;
  makespan.describe(problem);
  EXPECT_EQ(problem.pipeline, &makespan.pipeline.pipeline);
  EXPECT_EQ(problem.bounds, &makespan.bounds);
  ASSERT_FALSE(problem.features.empty());
  EXPECT_EQ(problem.features[0].size(), 64u);
}

// The paths of the first batch bound the second batch. Its own bound is at least as good, but needs a
// solution.
TEST(PlanMakespan, KnownPathsOfAPlanBoundItsNextBatch) {
  const Batches b;
  const AnalyticCostModel cost(b.model, b.cluster);
  KnownPaths known;
  PlanMakespan first({b.first, b.plan, b.model, cost});
  EXPECT_FALSE(first.recall(b.plan, known));
  first.prove();
  ASSERT_EQ(first.bounds.flows().size(), 1u);
  first.remember(b.plan, known);

  const ScheduleRequest request{b.second, b.plan, b.model, cost};
  PlanMakespan again(request);
  EXPECT_TRUE(again.recall(b.plan, known));
  ASSERT_EQ(again.bounds.flows().size(), 1u);
  EXPECT_EQ(again.bounds.flows()[0].waits, first.bounds.flows()[0].waits);

  PlanMakespan own(request);
  own.prove();
  const double own_s = own.bounds.bound(own.pipeline.features()).seconds;
  const double again_s = again.bounds.bound(again.pipeline.features()).seconds;
  EXPECT_LE(again_s, own_s * 1.001);
  EXPECT_GT(again_s, own_s * 0.9);
}

// The first batch gets a proof after its search, and the next one reuses the paths found for it. Without a
// proof there is the simple bound.
TEST(PlanMakespan, ATimeLimitIsForTheSearch) {
  const Batches b;
  const AnalyticCostModel cost(b.model, b.cluster);
  const auto proves = make_scheduler("makespan");
  const auto searches = make_scheduler("makespan", {.prove = false});
  ScheduleRequest request{b.first, b.plan, b.model, cost};
  request.limits.time_limit = Seconds(0.01);
  const ScheduleResult simple = searches->schedule(request);
  EXPECT_EQ(simple.bound_kind, BoundKind::simple);
  for (const auto& batch : {b.first, b.second}) {
    request.samples = batch;
    EXPECT_EQ(proves->schedule(request).bound_kind, BoundKind::linear_program);
  }
}

// Which batch's paths are used is left to chance, but they must bound every batch of the plan.
TEST(PlanMakespan, ThreadsShareKnownPaths) {
  const Batches b;
  const AnalyticCostModel cost(b.model, b.cluster);
  const Method& lpt = find_method("lpt");
  KnownPaths known;
  std::atomic<int> right{0};
  in_threads([&](int t) {
    for (int k = 0; k < 8; ++k) {
      const Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 3, 2, {2, 2, 2}}, 2 + (k + t) % 4, 64);
      ScheduleRequest request{k % 2 == 0 ? b.first : b.second, plan, b.model, cost};
      request.limits.time_limit = Seconds(1);
      PlanMakespan makespan(request);
      if (!makespan.recall(plan, known)) makespan.prove();
      makespan.remember(plan, known);
      AssignmentProblem problem;
      makespan.describe(problem);
      const MakespanBound bound = makespan.bounds.bound(problem.features);
      const SampleCosts costs = sample_costs(cost, plan, b.model, request.samples);
      problem.bins = {costs.encoder_s, costs.llm_s, plan.bins(), plan.llm.dp, true};
      const double found = lpt.solve(problem, {}).value.count();
      right += makespan.bounds.flows().size() == 1 && bound.seconds > 0.5 * found && bound.seconds <= found;
    }
  });
  EXPECT_EQ(right, kThreads * 8);
  for (int microbatches = 2; microbatches < 6; ++microbatches) {
    const Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 3, 2, {2, 2, 2}}, microbatches, 64);
    EXPECT_EQ(known.find(plan).size(), 1U) << microbatches;
  }
}

}  // namespace plan_makespan_test
}  // namespace dflop::testing
