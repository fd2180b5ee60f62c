#include "solver/planners/search/space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/solver/search_fixtures.hpp"

namespace dflop {
namespace search_space_test {

using testing::SmallSearch;

TEST(SearchSpace, PlansAreValidDifferentAndUseAllGpus) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SmallSearch c(3, 5, 2, 4, 12, 1, seed);
    if (seed == 1) c.search.orders = {OrderKind::gpipe, OrderKind::interleaved};
    const PlanRequest request = c.request();
    const SearchSpace space(request);
    std::vector<Plan> plans = testing::all_plans(space, c.model);
    ASSERT_GT(plans.size(), 500u);
    std::set<std::string> schedules;
    for (const Plan& plan : plans) {
      EXPECT_NO_THROW(validate(plan, c.model, c.cluster)) << describe(plan);
      EXPECT_EQ(plan.ranks(), 8) << describe(plan);
      schedules.insert(std::string(to_string(plan.order)));
    }
    // gpipe is used only on request; with schedules given, encoder-in-bubbles is not among them
    EXPECT_EQ(schedules.size(), seed == 1 ? 2u : 7u);
    // Each combination has at least one cut.
    EXPECT_LE(space.size(), static_cast<std::int64_t>(plans.size()));
    for (std::size_t i = 1; i < plans.size(); ++i) EXPECT_NE(plans[i], plans[i - 1]);
  }
}

// 5 is no multiple of 2 or 4 pipeline ranks.
TEST(SearchSpace, InterleavedHasMultiplesUnlessTheUserFixesTheNumber) {
  SmallSearch c(3, 5, 2, 4, 12, 1, 1);
  c.search.orders = {OrderKind::interleaved};
  const PlanRequest open = c.request();
  for (const Plan& plan : testing::all_plans(SearchSpace(open), c.model))
    EXPECT_EQ(plan.microbatches % plan.llm.pp, 0) << describe(plan);
  c.search.wish.microbatches = 5;
  const PlanRequest request = c.request();
  const SearchSpace space(request);
  int several = 0;
  for (const Plan& plan : testing::all_plans(space, c.model)) {
    EXPECT_NO_THROW(validate(plan, c.model, c.cluster)) << describe(plan);
    EXPECT_EQ(plan.microbatches, 5);
    several += plan.llm.pp > 1 ? 1 : 0;
  }
  EXPECT_GT(several, 0);
}

// A variation is a plan of the space. It has the same GPUs for each stage, and another order or number of
// microbatches, or only another placement or recomputation. If an order has the same number of chunks, layers
// stay in place.
TEST(SearchSpace, VariationsArePlansOfTheSpaceThatShareTheirGpus) {
  SmallSearch c(3, 5, 2, 4, 12, 1, 3);
  const PlanRequest request = c.request();
  const SearchSpace space(request);
  std::size_t most = 0;
  for (const Plan& plan : testing::all_plans(space, c.model)) {
    const std::vector<Plan> others = space.variations(plan);
    most = std::max(most, others.size());
    for (const Plan& other : others) {
      ASSERT_NE(other, plan);
      ASSERT_NO_THROW(validate(other, c.model, c.cluster)) << describe(other);
      ASSERT_TRUE(space.allows(other)) << describe(other);
      EXPECT_EQ(other.layout, plan.layout);
      EXPECT_EQ(other.ranks(), plan.ranks());
      if (other.chunks == plan.chunks) {
        EXPECT_EQ(other.llm.layers, plan.llm.layers);
      }
      const bool of_order = other.order != plan.order || other.microbatches != plan.microbatches;
      const int choices = (of_order ? 1 : 0) + (other.placement != plan.placement ? 1 : 0) +
                          (other.recomputation != plan.recomputation ? 1 : 0);
      EXPECT_LE(choices, other.microbatches == plan.microbatches ? 2 : 1) << describe(other);
    }
  }
  // A pipeline of 2: four orders of one chunk and two of two, for three counts, plus two recomputations.
  EXPECT_GT(most, 12u);
}

// Two GPUs of 20 multiprocessors have two quanta of 8 each. One eighth of these is a quarter of a quantum, so
// none. From six eighths on, which are 1.5, the LLM has none. Two to five eighths, 0.5 to 1.25, are all one.
TEST(SearchSpace, SharedPlansAreValidAndHaveSharesThatAreGranted) {
  SmallSearch c(2, 2, 1, 2, 6, 1, 0);
  c.cost.arithmetic = 1;
  c.cluster.gpu.multiprocessors = 20;
  const PlanRequest request = c.request();
  std::set<double> shares;
  for (const Plan& plan : testing::all_plans(SearchSpace(request, SpacePart::shared), c.model)) {
    ASSERT_EQ(plan.layout, Layout::shared);
    ASSERT_NO_THROW(validate(plan, c.model, c.cluster)) << describe(plan);
    EXPECT_EQ(plan.gpus(), 2);
    shares.insert(plan.encoder_share);
  }
  EXPECT_EQ(shares, std::set<double>{0.25});
  EXPECT_FALSE(SearchSpace(request).has(Layout::shared));
  c.search.shared = false;
  EXPECT_TRUE(testing::all_plans(SearchSpace(c.request(), SpacePart::shared), c.model).empty());
}

std::set<double> shares_of(const SmallSearch& c) {
  std::set<double> shares;
  const PlanRequest request = c.request();
  const SearchSpace space(request, SpacePart::shared);
  for (const SearchShape& shape : space.shapes()) shares.insert(shape.encoder_share);
  return shares;
}

// The cost model knows three quanta: one and two eighths (0.375 and 0.75) are one, since the encoder has at
// least one; three and four (1.125 and 1.5) are one and two; five and six (1.875 and 2.25) are two; and seven
// (2.625) leave the LLM the last one. The GPU has two quanta of 8, and two to five eighths are one of them.
// With both kinds of quanta, the prices distinguish three from four eighths. If no quanta are known, all
// shares differ.
TEST(SearchSpace, SharesDifferInGrantOrCost) {
  SmallSearch c(2, 2, 1, 2, 6, 1, 0);
  c.cost.arithmetic = 1;
  EXPECT_EQ(shares_of(c).size(), 7u);
  c.cost.quanta = 3;
  EXPECT_EQ(shares_of(c), (std::set<double>{0.125, 0.5}));
  c.cluster.gpu.multiprocessors = 20;
  EXPECT_EQ(shares_of(c), (std::set<double>{0.25, 0.5}));
  c.cost.quanta = 0;
  EXPECT_EQ(shares_of(c), (std::set<double>{0.25}));
}

TEST(SearchSpace, OptionsNarrowIt) {
  SmallSearch c(3, 5, 1, 4, 8, 1, 1);
  c.search.layouts = {Layout::uniform};
  c.search.recomputations = {Recomputation::selective};
  const PlanRequest request = c.request();
  for (const Plan& plan : testing::all_plans(SearchSpace(request), c.model)) {
    EXPECT_EQ(plan.layout, Layout::uniform);
    EXPECT_EQ(plan.recomputation, Recomputation::selective);
  }
}

TEST(SearchSpace, MicrobatchesGrowByAQuarterAtMostAndEndWithOneSampleABin) {
  const SmallSearch c(3, 5, 1, 2, 30, 1, 1);
  const PlanRequest request = c.request();
  const SearchSpace space(request);
  // 30 samples, dp 1: four per octave from 8 on, and 30.
  const SearchShape shape{Layout::uniform, {1, 2, 1, {}}, {1, 2, 1, {}}};
  EXPECT_EQ(space.microbatches(shape),
            (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 30}));
}

// The head takes as long as two layers: of 6 layers over two stages, the last stage gets 2 of 8 layers' time.
TEST(SearchSpace, BalancedSplitsCountTheHead) {
  SmallSearch c(1, 6, 1, 2, 8, 1, 1);
  c.cost.linear.pass_s = 0;
  c.cost.linear.head_layers = 2;
  for (Sample& sample : c.batches.front()) sample.encoder_sequences.clear();
  const PlanRequest request = c.request();
  const SearchSpace space(request);
  const SearchShape shape{Layout::uniform, {1, 2, 1, {}}, {1, 2, 1, {}}};
  const auto plan = space.plan(shape, Recomputation::full, 1, SearchVariant{});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->llm.layers, (std::vector<int>{4, 2}));
}

}  // namespace search_space_test
}  // namespace dflop
