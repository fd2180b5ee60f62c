#include "solver/plan_makespan.hpp"

#include <gtest/gtest.h>

#include "costmodel/analytic.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/costmodel/fixtures.hpp"

namespace dflop::testing {
namespace {

struct Batches {
  ClusterSpec cluster = tiny_cluster();
  Plan plan = disaggregated_plan({1, 1, 1, {4}}, {1, 3, 2, {2, 2, 2}}, 4, 64);
  ModelSpec model = tiny_model();
  Batch first;
  Batch second;

  Batches() {
    cluster.gpu = fixtures::a100();
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
  EXPECT_EQ(problem.pipeline, &makespan.plan().pipeline);
  EXPECT_EQ(problem.bounds, &makespan.bounds());
  ASSERT_FALSE(problem.features.empty());
  EXPECT_EQ(problem.features[0].size(), 64u);
}

// The paths of the first batch; the second one's own bound is at least as good, but needs a solution.
TEST(PlanMakespan, TakesKnownPathsOnlyWhereTimeIsLimited) {
  const Batches b;
  const AnalyticCostModel cost(b.model, b.cluster);
  KnownPaths known;
  ScheduleRequest request{b.first, b.plan, b.model, cost};
  request.time_limit = Seconds(1);
  PlanMakespan first(request);
  first.prepare(request, known);
  ASSERT_EQ(first.bounds().flows().size(), 1u);
  ASSERT_EQ(known.find(b.plan).size(), 1u);

  request.samples = b.second;
  PlanMakespan again(request);
  again.prepare(request, known);
  ASSERT_EQ(again.bounds().flows().size(), 1u);
  EXPECT_EQ(again.bounds().flows()[0].waits, first.bounds().flows()[0].waits);

  request.time_limit = std::nullopt;
  KnownPaths none;
  PlanMakespan own(request);
  own.prepare(request, known);
  PlanMakespan alone(request);
  alone.prepare(request, none);
  const double own_s = own.bounds().bound(own.plan().features()).seconds;
  EXPECT_EQ(own_s, alone.bounds().bound(alone.plan().features()).seconds);
  const double again_s = again.bounds().bound(again.plan().features()).seconds;
  EXPECT_LE(again_s, own_s * 1.001);
  EXPECT_GT(again_s, own_s * 0.9);
}

}  // namespace
}  // namespace dflop::testing
