#include "solver/bins/cap_table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/support/random.hpp"

namespace dflop {
namespace cap_table_test {

struct CappedItems {
  std::vector<double> time;
  std::vector<double> weight;
  BinProblem problem;

  CappedItems(Random& random, int items) : time(items, 1.0) {
    for (int i = 0; i < items; ++i) weight.push_back(static_cast<double>(random.below(10)));
    const int dp = 1 + static_cast<int>(random.below(3));
    const int microbatches = 1 + static_cast<int>(random.below(5));
    problem = {time, time, dp * microbatches, dp};
    problem.caps.push_back({"tokens", weight, static_cast<double>(5 + random.below(20)),
                            1 + static_cast<int>(random.below(4)), random.below(2) == 0});
  }
  CappedItems(const CappedItems&) = delete;
};

// An item fits if and only if broken_cap() finds no broken cap with it.
TEST(CapTable, FitsItemsThatBreakNoCap) {
  Random random(1);
  int fits = 0;
  int tries = 0;
  for (int round = 0; round < 400; ++round) {
    const CappedItems data(random, 12);
    CapTable table(data.problem);
    std::vector<std::int32_t> bin;
    std::vector<double> placed;
    for (std::int32_t i = 0; i < 12; ++i) {
      const auto b = static_cast<std::int32_t>(random.below(data.problem.bins));
      bin.push_back(b);
      placed.push_back(data.weight[i]);
      BinProblem so_far = data.problem;
      so_far.caps[0].weight = placed;
      const bool fit = table.fits(i, b);
      EXPECT_EQ(fit, !broken_cap(so_far, bin).has_value());
      ++tries;
      if (fit) {
        ++fits;
        table.add(i, b);
      } else {
        bin.pop_back();
        bin.push_back(b);
        placed.back() = 0;  // left out
      }
    }
  }
  EXPECT_GT(fits, tries / 4);
  EXPECT_LT(fits, tries);
}

// Both bins have capacity for an exchange of two items if and only if the assignment after it breaks no cap.
TEST(CapTable, CapacityDecidesWhichExchangesAreAllowed) {
  Random random(2);
  int allowed = 0;
  int checked = 0;
  for (int round = 0; round < 3000; ++round) {
    const CappedItems data(random, 8);
    std::vector<std::int32_t> bin;
    CapTable table(data.problem);
    for (std::int32_t i = 0; i < 8; ++i) {
      bin.push_back(static_cast<std::int32_t>(random.below(data.problem.bins)));
      table.add(i, bin.back());
    }
    if (bin[0] == bin[1] || broken_cap(data.problem, bin)) continue;
    const double change = data.weight[1] - data.weight[0];  // change of item 0's bin
    const bool fits = change <= table.room(0, bin[0], bin[1]) && -change <= table.room(0, bin[1], bin[0]);
    std::swap(bin[0], bin[1]);
    EXPECT_EQ(fits, !broken_cap(data.problem, bin).has_value());
    ++checked;
    if (fits) ++allowed;
  }
  EXPECT_GT(checked, 200);
  EXPECT_LT(allowed, checked);
}

TEST(CapTable, ReportsImpossibleCaps) {
  const std::vector<double> time(4, 1.0);
  const std::vector<double> weight = {3, 3, 3, 3};
  BinProblem problem{time, time, 3};
  problem.caps.push_back({"tokens", weight, 4});
  EXPECT_EQ(impossible_cap(problem), std::nullopt);  // 12 in total, 3 x 4: possible by the sum, not by item
  problem.caps[0].most = 3.5;                        // 10.5 < 12
  EXPECT_EQ(impossible_cap(problem), "12 tokens in total, but 3 bins hold at most 10.5 under the cap of 3.5");
  problem.caps[0].most = 2;
  EXPECT_EQ(impossible_cap(problem), "item 0 has 3 tokens, but the cap is 2");
  // Three microbatches, any two consecutive ones at most 7: two windows, 14.
  problem.caps[0] = {"tokens", weight, 7, 2};
  EXPECT_EQ(impossible_cap(problem), std::nullopt);
  problem.caps[0].most = 5.9;
  EXPECT_NE(impossible_cap(problem), std::nullopt);
}

/// 2.5 x 2^30 and 1.25 x 2^30 bytes. Four items of 2.5 GiB are 10 GiB in total; three bins of 3 GiB hold 9.
TEST(CapTable, SaysManyBytesInGib) {
  const std::vector<double> time(4, 1.0);
  const std::vector<double> weight(4, 2684354560);
  BinProblem problem{time, time, 3};
  problem.caps.push_back({"bytes of activations on stage 1", weight, 1342177280});
  EXPECT_EQ(impossible_cap(problem), "item 0 has 2.50 GiB of activations on stage 1, but the cap is 1.25");
  problem.caps[0].most = 3221225472;
  EXPECT_EQ(
      impossible_cap(problem),
      "10.00 GiB of activations on stage 1 in total, but 3 bins hold at most 9.00 under the cap of 3.00");
  const std::vector<double> few(4, 60);
  problem.caps[0] = {"bytes of activations on stage 1", few, 59};
  EXPECT_EQ(impossible_cap(problem), "item 0 has 60 bytes of activations on stage 1, but the cap is 59");
}

}  // namespace cap_table_test
}  // namespace dflop
