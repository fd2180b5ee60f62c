#include "solver/bins/lpt.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace {

TEST(Lpt, WorkedExample) {
  const std::vector<double> encoder = {0, 6, 2, 3};
  const std::vector<double> llm = {7, 1, 5, 3};
  // Order: 0 (7), 1 (6), 2 (5), 3 (3).
  // 0: both bins empty, the first. Bin 0: E 0, L 7.
  // 1: bin 0 would have max(6, 8) = 8, bin 1 max(6, 1) = 6: bin 1. Bin 1: E 6, L 1.
  // 2: bin 0 max(2, 12) = 12, bin 1 max(8, 6) = 8: bin 1. Bin 1: E 8, L 6.
  // 3: bin 0 max(3, 10) = 10, bin 1 max(11, 9) = 11: bin 0.
  EXPECT_EQ(lpt({encoder, llm, 2}), (std::vector<std::int32_t>{0, 1, 1, 0}));
}

TEST(Lpt, TiesGoToTheSmallestSumThenTheFirst) {
  const std::vector<double> encoder = {5, 1, 0};
  const std::vector<double> llm = {5, 5, 5};
  // 0 to bin 0, 1 to bin 1 and 2 to bin 2 (all smaller than sharing); a fourth item of (0, 5) would give L =
  // 10 in all three; sums are 5 + 10, 1 + 10 and 0 + 10: bin 2.
  std::vector<double> encoder_of_four = encoder;
  std::vector<double> llm_of_four = llm;
  encoder_of_four.push_back(0);
  llm_of_four.push_back(5);
  EXPECT_EQ(lpt({encoder_of_four, llm_of_four, 3}), (std::vector<std::int32_t>{0, 1, 2, 2}));
}

TEST(Lpt, ItemsWithoutWorkFillEmptyBins) {
  const std::vector<double> zeros(4, 0.0);
  // The first would be the best for all; the last items must go where nothing is yet.
  const std::vector<std::int32_t> bin = lpt({zeros, zeros, 3});
  EXPECT_EQ(std::set<std::int32_t>(bin.begin(), bin.end()).size(), 3u);
}

TEST(Lpt, FillsEveryBin) {
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    const int bins = 1 + static_cast<int>(random.below(12));
    const int items = bins + static_cast<int>(random.below(30));
    const testing::RandomItems data(random, items, round % 2 == 0);
    const std::vector<std::int32_t> bin = lpt(data.problem(bins));
    ASSERT_EQ(bin.size(), static_cast<std::size_t>(items));
    EXPECT_EQ(std::set<std::int32_t>(bin.begin(), bin.end()).size(), static_cast<std::size_t>(bins));
    EXPECT_GE(largest_load(data.problem(bins), bin) * (1 + 1e-12), lower_bound(data.problem(bins)));
  }
}

}  // namespace
}  // namespace dflop
