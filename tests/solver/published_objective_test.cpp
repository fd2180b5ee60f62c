#include "solver/planners/expected/planner.hpp"

#include <gtest/gtest.h>

#include "solver/planners/expected/module_durations.hpp"
#include "tests/solver/fixtures.hpp"
#include "tests/solver/published_objective.hpp"

namespace dflop {
namespace published_objective_test {

TEST(PublishedObjective, SharesAreRounded) {
  // 5 copies cut in 2: 2.5 copies of 3, 10 and 7 are 7.5, 25 and 17.5.
  EXPECT_EQ(share_of_batch({3, 10, 7}, 5, 2), (Workload{8, 25, 18}));
  // A quarter of a copy: 0.75, 2.5 and 1.75.
  EXPECT_EQ(share_of_batch({3, 10, 7}, 1, 4), (Workload{1, 3, 2}));
}

TEST(PublishedObjective, SharesKeepWorkAndItsAbsence) {
  EXPECT_EQ(share_of_batch({1, 10, 100}, 1, 1000), (Workload{1, 1, 1}));
  EXPECT_EQ(share_of_batch({0, 0, 0}, 512, 2), (Workload{0, 0, 0}));
}

TEST(PublishedObjective, WorkedByHand) {
  const testing::LinearCostModel cost;  // 1 ms per token and layer forward, 2 ms backward
  const ModelSpec model = testing::small_model(3, 4);
  Plan plan;
  plan.gbs = 8;
  plan.microbatches = 2;
  plan.encoder = {1, 2, 2, {2, 1}};
  plan.llm = {2, 1, 1, {4}};
  const std::vector<Sample> items = {testing::small_sample(4, 60), testing::small_sample(0, 100),
                                     testing::small_sample(40, 60)};
  // An encoder microbatch is 8 / (2 * 2) = 2 copies, and its slowest stage has 2 layers. An LLM microbatch is
  // 8 / (2 * 1) = 4 copies over 4 layers and 2 tp ranks. Steps: 2 + 2 + 1 - 1 = 4.
  //   4 tiles of 10 tokens, 60 LLM tokens:
  //     E = 2 * 40 * 2 * 3 ms = 0.48 s, L = 4 * 60 * 4 / 2 * 3 ms = 1.44 s, T = 5.76
  //   no tiles, 100 tokens: E = 0, L = 4 * 100 * 4 / 2 * 3 ms = 2.4 s, T = 9.6
  //   40 tiles, 60 tokens: E = 2 * 400 * 2 * 3 ms = 4.8 s, L = 1.44 s, T = 19.2
  EXPECT_NEAR(testing::published_objective(plan, model, cost, items).count(), (5.76 + 9.6 + 19.2) / 3, 1e-12);
}

}  // namespace published_objective_test
}  // namespace dflop
