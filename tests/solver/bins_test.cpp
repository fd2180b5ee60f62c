#include "solver/bins.hpp"

#include <gtest/gtest.h>

#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace bins_test {

TEST(Bins, LargestLoadIsTheLargestOfBothDimensions) {
  const std::vector<double> encoder = {1, 2, 4};
  const std::vector<double> llm = {5, 1, 1};
  const BinProblem problem{encoder, llm, 2};
  // Bin 0 has items 0 and 2: E = 1 + 4 = 5, L = 5 + 1 = 6. Bin 1 has item 1: E = 2, L = 1.
  EXPECT_DOUBLE_EQ(largest_load(problem, std::vector<std::int32_t>{0, 1, 0}), 6.0);
  // Bin 0 has items 0 and 1: E = 3, L = 6. Bin 1 has item 2: E = 4, L = 1.
  EXPECT_DOUBLE_EQ(largest_load(problem, std::vector<std::int32_t>{0, 0, 1}), 6.0);
  // Bin 0 has item 0: E = 1, L = 5. Bin 1 has items 1 and 2: E = 6, L = 2.
  EXPECT_DOUBLE_EQ(largest_load(problem, std::vector<std::int32_t>{0, 1, 1}), 6.0);
}

TEST(Bins, BoundIsTheMeanLoad) {
  const std::vector<double> encoder = {1, 1, 1, 1};
  const std::vector<double> llm = {2, 2, 2, 2};
  // LLM: 8 / 2 = 4; the largest item is 2; 2 of the 3 largest items share a bin: 4.
  EXPECT_DOUBLE_EQ(lower_bound({encoder, llm, 2}), 4.0);
}

TEST(Bins, BoundIsTheLargestItem) {
  const std::vector<double> encoder = {9, 1, 1};
  const std::vector<double> llm = {1, 1, 1};
  // 11 / 3 < 9, and with as many bins as items, none has to share.
  EXPECT_DOUBLE_EQ(lower_bound({encoder, llm, 3}), 9.0);
}

TEST(Bins, BoundIsTwoItemsThatMustShareABin) {
  const std::vector<double> encoder = {0, 0, 0};
  const std::vector<double> llm = {4, 3, 3};
  // 10 / 2 = 5; the largest is 4; of three items in two bins, two share a bin: at least 3 + 3 = 6.
  EXPECT_DOUBLE_EQ(lower_bound({encoder, llm, 2}), 6.0);
}

TEST(Bins, BoundIsAWholeNumberOfTiles) {
  const std::vector<double> encoder = {0.3, 0.2, 0.1, 0.1};
  const std::vector<double> llm = {0, 0, 0, 0};
  // 7 tiles of 0.1 in two bins: one bin has 4. The mean is 0.35, the largest 0.3, two of three 0.2 + 0.1.
  EXPECT_NEAR(lower_bound({encoder, llm, 2}), 0.4, 1e-15);
  // 0.3 and 0.25 are multiples of 0.05: 14 tiles.
  EXPECT_NEAR(lower_bound({std::vector<double>{0.3, 0.25, 0.1, 0.1}, llm, 2}), 0.4, 1e-15);
  // Without a common unit of time: the mean.
  EXPECT_NEAR(lower_bound({std::vector<double>{0.3, 0.2718281828, 0.1, 0.1}, llm, 2}), 0.3859140914, 1e-12);
}

TEST(Bins, BoundCombinesBothDimensions) {
  const std::vector<double> encoder = {6, 4, 2};
  const std::vector<double> llm = {2, 4, 6};
  // Separately: 12 / 2 = 6, largest 6, pairs 4 + 2 = 6. With half of each, all weigh 4 and two must share: 8.
  EXPECT_DOUBLE_EQ(lower_bound({encoder, llm, 2}), 8.0);
}

TEST(Bins, BoundIsBelowEveryAssignment) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    const int bins = 1 + static_cast<int>(random.below(3));
    const int items = bins + static_cast<int>(random.below(7 - bins));
    const testing::RandomItems data(random, items, round % 2 == 0);
    const double best = testing::brute_force(data.problem(bins));
    EXPECT_LE(lower_bound(data.problem(bins)), best * (1 + 1e-12)) << "round " << round;
  }
}

TEST(Bins, OrderIsByTheLargerTimeAndStable) {
  const std::vector<double> encoder = {1, 5, 0, 2};
  const std::vector<double> llm = {3, 1, 3, 2};
  // The larger times are 3, 5, 3, 2.
  EXPECT_EQ(by_falling_size({encoder, llm, 2}), (std::vector<std::int32_t>{1, 0, 2, 3}));
}

}  // namespace bins_test
}  // namespace dflop
