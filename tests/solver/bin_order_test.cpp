#include "solver/bins/order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/support/random.hpp"

namespace dflop {
namespace {

TEST(ArrangeBins, LikeLoadsShareAMicrobatchAndTheLargestIsInTheMiddle) {
  // Six bins of one item each, 3 microbatches x dp 2. Rising loads: 1 2 | 3 4 | 5 6. The smallest pair comes
  // first, the next one last, the largest in the middle; every second pair is dealt in reverse.
  const std::vector<double> encoder = {0, 0, 0, 0, 0, 0};
  const std::vector<double> llm = {6, 1, 4, 3, 2, 5};
  std::vector<std::int32_t> bin = {0, 1, 2, 3, 4, 5};
  arrange_bins({encoder, llm, 6, 2}, bin);
  // microbatch 0: loads 1, 2; microbatch 2: 4, 3; microbatch 1: 5, 6.
  EXPECT_EQ(bin, (std::vector<std::int32_t>{1 * 2 + 1, 0, 2 * 2 + 0, 2 * 2 + 1, 1, 1 * 2 + 0}));
}

TEST(ArrangeBins, OnlyRenames) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const int dp = 1 + static_cast<int>(random.below(4));
    const int bins = dp * (1 + static_cast<int>(random.below(5)));
    std::vector<double> encoder;
    std::vector<double> llm;
    std::vector<std::int32_t> bin;
    for (int i = 0; i < 40; ++i) {
      encoder.push_back(random.uniform());
      llm.push_back(random.uniform());
      bin.push_back(static_cast<std::int32_t>(i < bins ? i : random.below(bins)));
    }
    const BinProblem problem{encoder, llm, bins, dp, round % 2 == 0};
    const std::vector<std::int32_t> before = bin;
    arrange_bins(problem, bin);
    std::map<std::int32_t, std::int32_t> name;
    for (std::size_t i = 0; i < bin.size(); ++i) {
      const auto [place, is_new] = name.try_emplace(before[i], bin[i]);
      EXPECT_EQ(place->second, bin[i]);  // items of one bin stay together
      EXPECT_TRUE(bin[i] >= 0 && bin[i] < bins);
    }
    std::vector<bool> taken(bins, false);
    for (const auto& [from, to] : name) {
      EXPECT_FALSE(taken[to]);  // and bins stay apart
      taken[to] = true;
    }
    EXPECT_DOUBLE_EQ(largest_load(problem, bin), largest_load(problem, before));
  }
}

}  // namespace
}  // namespace dflop
