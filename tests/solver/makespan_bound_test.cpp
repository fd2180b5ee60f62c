#include "solver/makespan/bound.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>

#include "core/support/random.hpp"
#include "tests/core/pipelines.hpp"

namespace dflop {
namespace makespan_bound_test {

int pick(Random& random, int most) {
  return static_cast<int>(1 + random.below(static_cast<std::uint64_t>(most)));
}

/// A pipeline of a few steps in an order that does not depend on durations, with some shared ranks at the
/// front, and items for it.
/// front, and items for it.
struct Case {
  LoadPipeline pipeline;
  std::vector<std::vector<double>> values;

  Features features() const { return {values.begin(), values.end()}; }

  /// The minimum makespan over all assignments.
  double best() const {
    std::vector<std::int32_t> bin(values[0].size(), 0);
    double best = std::numeric_limits<double>::infinity();
    while (true) {
      best = std::min(best, makespan(pipeline, load_table(pipeline, features(), bin)));
      std::size_t digit = 0;
      while (digit < bin.size() && ++bin[digit] == pipeline.bins()) bin[digit++] = 0;
      if (digit == bin.size()) return best;
    }
  }

  void draw_items(Random& random) {
    const int items = pipeline.bins() <= 2 ? 8 : pipeline.bins() <= 4 ? 5 : 4;
    for (auto& of_feature : values) {
      of_feature.clear();
      for (int i = 0; i < items; ++i) of_feature.push_back(random.below(4) == 0 ? 0.0 : random.uniform());
    }
  }
};

Case random_case(Random& random) {
  PipelineShape shape{testing::draw_order(random, testing::is_fixed_chain), pick(random, 3), 1,
                      pick(random, 3)};
  const OrderTraits& order = traits(shape.kind);
  if (order.has_chunks()) shape.chunks = pick(random, 2);
  const int dp = shape.microbatches == 1 ? pick(random, 3) : shape.microbatches == 2 ? pick(random, 2) : 1;
  const int shared = order.has_chunks() ? 0 : static_cast<int>(random.below(2));
  std::vector<Load> loads(3);
  const std::size_t features = 2;
  for (Load& load : loads) {
    load.of_microbatch = random.below(3) == 0;
    for (std::size_t k = 0; k < features; ++k)
      load.mix.push_back(random.below(3) == 0 ? 0 : random.uniform());
  }
  std::vector<StageLoadTimes> stages(shape.stages());
  const auto time = [&] {
    return LoadTime{random.below(2) == 0 ? 0.0 : 0.2 * random.uniform(), random.uniform(),
                    static_cast<std::int32_t>(random.below(loads.size()))};
  };
  for (int s = 0; s < shape.stages(); ++s) {
    stages[s] = {time(), time(), time(), {}, {}, s < shared};
    if (random.below(2) == 0) stages[s].message_forward = stages[s].message_backward = time();
  }
  std::vector<double> tail_s(shape.all_ranks());
  for (double& tail : tail_s) tail = random.below(2) == 0 ? 0.0 : random.uniform();
  Case c{make_load_pipeline({shape, pipeline_steps(shape)}, dp, loads, stages, tail_s),
         std::vector<std::vector<double>>(features)};
  c.draw_items(random);
  return c;
}

// 1F1B of two microbatches over two ranks with the same load, forward l and backward 2 l, l1 + l2 = 10. Rank
// 1 is busy for 30, begins after l1 and is followed by rank 0's last backward of 2 l2: T >= 40 + l2. The
// first microbatch takes 6 l1, followed by the last backward: T >= 6 l1 + 2 l2 = 60 - 4 l2. Both are 44 for
// l2 = 4, and the pipeline does run in 44; and 4/5 of the first plus 1/5 of the second is 44 for any l2.
TEST(MakespanBound, IsTheValueOfTheLinearProgram) {
  const LoadPipeline pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 2}, 0, 1, 0, 2.0);
  MakespanBounds bounds(pipeline);
  const std::vector<double> encoder_s(100, 0.0);
  const std::vector<double> llm_s(100, 0.1);
  const Features items = {encoder_s, llm_s};
  EXPECT_EQ(bounds.bound(items).kind, BoundKind::simple);
  EXPECT_NEAR(bounds.bound(items).seconds, 30, 1e-6);
  bounds.prepare(items);
  EXPECT_EQ(bounds.bound(items).kind, BoundKind::linear_program);
  EXPECT_NEAR(bounds.bound(items).seconds, 44, 1e-6);
}

// One item of 4 in a pipeline of two ranks takes 4 + 4 + 8 + 8 in any microbatch, more than the total work of
// a rank.
TEST(MakespanBound, IncludesThePathOfTheLargestItem) {
  const LoadPipeline pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 8}, 0, 1, 0, 2.0);
  const std::vector<double> encoder_s(9, 0.0);
  std::vector<double> llm_s(9, 0.1);
  llm_s[5] = 4;
  EXPECT_NEAR(MakespanBounds(pipeline).bound({encoder_s, llm_s}).seconds, 24, 1e-6);
}

TEST(MakespanBound, IsNeverAboveTheBestOfAllAssignments) {
  Random random(1);
  double closeness = 0;
  double simple_closeness = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const Case c = random_case(random);
    const double best = c.best();
    MakespanBounds bounds(c.pipeline);
    const double simple = bounds.bound(c.features()).seconds;
    bounds.prepare(c.features());
    const double bound = bounds.bound(c.features()).seconds;
    EXPECT_LE(MakespanBounds(c.pipeline, BoundKind::simple).bound(c.features()).seconds, simple);
    EXPECT_LE(simple, bound);
    EXPECT_LE(bound, best);
    closeness += bound / best / kRounds;
    simple_closeness += simple / best / kRounds;
  }
  // Items are few and large, so fractions of them give weak bounds, but the linear program is still stronger.
  EXPECT_GT(closeness, 0.85);
  EXPECT_GT(closeness, simple_closeness + 0.02);
}

TEST(MakespanBound, OfOneBatchHoldsForAnother) {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    Case c = random_case(random);
    MakespanBounds bounds(c.pipeline);
    for (int batch = 0; batch < 3; ++batch) {
      EXPECT_LE(bounds.bound(c.features()).seconds, c.best());
      bounds.prepare(c.features());
      c.draw_items(random);
    }
  }
}

// Whatever a solver returns, complete or not: any weights of paths give a bound.
TEST(MakespanBound, HoldsEvenIfTheSolverIsWrong) {
  Random random(3);
  const std::vector<double> odd = {
      0, 1, -1, 1e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const Case c = random_case(random);
    MakespanBounds bounds(c.pipeline);
    PathFlow flow;
    const auto draw = [&] { return random.below(3) == 0 ? odd[random.below(odd.size())] : random.uniform(); };
    for (int r = 0; r < c.pipeline.ranks(); ++r) flow.ends.push_back(draw());
    for (std::size_t i = 0; i < c.pipeline.steps.size(); ++i) flow.waits.push_back(draw());
    bounds.use(flow);
    EXPECT_EQ(bounds.flows().size(), 1u);
    bounds.prepare(c.features(), {2, static_cast<int>(random.below(20))});  // and one that stops early
    EXPECT_LE(bounds.bound(c.features()).seconds, c.best());
  }
}

TEST(MakespanBound, IgnoresPathsOfAnotherPipeline) {
  MakespanBounds bounds(simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 2}, 0, 1, 0, 2.0));
  bounds.use({{1, 1, 1}, std::vector<double>(8, 0.5)});
  bounds.use({{1, 1}, std::vector<double>(9, 0.5)});
  EXPECT_TRUE(bounds.flows().empty());
}

TEST(MakespanBound, IsMissingWithoutAFloor) {
  const std::vector<double> values(4, 1.0);
  MakespanBounds bounds(simple_load_pipeline({OrderKind::one_f_one_b, 2, 1, 2}, 0, 1, 0, 2.0),
                        BoundKind::none);
  bounds.prepare({values, values});
  EXPECT_EQ(bounds.bound({values, values}).kind, BoundKind::none);
  EXPECT_EQ(bounds.bound({values, values}).seconds, 0);
}

TEST(MakespanBound, CanBeSharedByThreads) {
  Random random(4);
  const Case c = random_case(random);
  MakespanBounds alone(c.pipeline);
  alone.prepare(c.features());
  const double expected = alone.bound(c.features()).seconds;
  MakespanBounds shared(c.pipeline);
  shared.prepare(c.features());
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, 0);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        if (round % 10 == 0) shared.prepare(c.features());
        wrong[t] += shared.bound(c.features()).seconds == expected ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::accumulate(wrong.begin(), wrong.end(), 0), 0);
}

}  // namespace makespan_bound_test
}  // namespace dflop
