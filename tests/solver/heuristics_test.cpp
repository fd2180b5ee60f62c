#include "solver/bins/heuristics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/support/random.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace heuristics_test {

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
  // 0 goes to bin 0, 1 to bin 1 and 2 to bin 2 (each is less than sharing). A fourth item of (0, 5) would
  // give L = 10 in all three; the sums are 5 + 10, 1 + 10 and 0 + 10: bin 2.
  std::vector<double> encoder_of_four = encoder;
  std::vector<double> llm_of_four = llm;
  encoder_of_four.push_back(0);
  llm_of_four.push_back(5);
  EXPECT_EQ(lpt({encoder_of_four, llm_of_four, 3}), (std::vector<std::int32_t>{0, 1, 2, 2}));
}

TEST(Lpt, ItemsWithoutWorkFillEmptyBins) {
  const std::vector<double> zeros(4, 0.0);
  // The first bin would be best for every item, but the last items must go to empty bins.
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

TEST(KarmarkarKarp, WorkedExample) {
  // The textbook's 8, 7, 6, 5, 4 in two sets: 8 - 7 = 1 | 6 5 4 -> 6 - 5 = 1 | 4 1 1 -> 4 - 1 = 3 | 1 -> 3 -
  // 1 = 2. Sets: 6, 8 = 14 and 7, 5, 4 = 16.
  const std::vector<double> encoder = {100, 0, 0, 0, 0};  // ignored
  const std::vector<double> llm = {8, 7, 6, 5, 4};
  const std::vector<std::int32_t> bin = karmarkar_karp({encoder, llm, 2});
  const std::int32_t of_seven = bin[1];
  EXPECT_EQ(bin, (std::vector<std::int32_t>{1 - of_seven, of_seven, 1 - of_seven, of_seven, of_seven}));
}

TEST(KarmarkarKarp, FillsEveryBinAndPlacesEveryItem) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const int bins = 1 + static_cast<int>(random.below(8));
    const testing::RandomItems data(random, bins + static_cast<int>(random.below(20)), false);
    BinProblem problem = data.problem(bins);
    std::vector<double> llm(data.llm_s);
    if (round % 5 == 0) std::fill(llm.begin(), llm.end(), 0.0);
    problem.llm_s = llm;
    const std::vector<std::int32_t> bin = karmarkar_karp(problem);
    ASSERT_EQ(bin.size(), problem.items());
    EXPECT_EQ(std::set<std::int32_t>(bin.begin(), bin.end()).size(), static_cast<std::size_t>(bins));
  }
}

/// The method as published, with every set of every partition: returns the sums of the final sets.
std::vector<double> sums_of_the_textbook(const std::vector<double>& values, int bins) {
  std::vector<std::vector<double>> all;
  for (const double value : values) {
    all.emplace_back(bins, 0.0);
    all.back().front() = value;
  }
  const auto larger = [](const auto& a, const auto& b) {
    return a.front() - a.back() < b.front() - b.back();
  };
  const auto take = [&] {
    const auto most = std::max_element(all.begin(), all.end(), larger);
    std::vector<double> sums = *most;
    all.erase(most);
    return sums;
  };
  while (all.size() > 1) {
    std::vector<double> a = take();
    const std::vector<double> b = take();
    for (int k = 0; k < bins; ++k) a[k] += b[bins - 1 - k];
    std::sort(a.begin(), a.end(), std::greater<>());
    all.push_back(a);
  }
  return all.front();
}

TEST(KarmarkarKarp, HasTheSumsOfTheTextbook) {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    const int bins = 1 + static_cast<int>(random.below(9));
    const std::vector<double> zeros(1 + random.below(40), 0.0);
    std::vector<double> llm(zeros.size());
    for (double& value : llm) value = 1 + random.uniform();  // all spreads differ
    BinProblem problem{zeros, llm, bins};
    problem.allow_empty = true;
    const std::vector<std::int32_t> bin = karmarkar_karp(problem);
    std::vector<double> sums(bins, 0.0);
    for (std::size_t i = 0; i < bin.size(); ++i) sums[bin[i]] += llm[i];
    const std::vector<double> expected = sums_of_the_textbook(llm, bins);
    for (int b = 0; b < bins; ++b) EXPECT_NEAR(sums[b], expected[b], 1e-12) << round;
  }
}

TEST(ArrangeBins, LikeLoadsShareAMicrobatchAndTheLargestIsInTheMiddle) {
  // Six bins of one item each, 3 microbatches x dp 2. Increasing loads: 1 2 | 3 4 | 5 6. The smallest pair
  // comes first, the next pair last, the largest in the middle; every second pair is dealt in reverse.
  const std::vector<double> encoder = {0, 0, 0, 0, 0, 0};
  const std::vector<double> llm = {6, 1, 4, 3, 2, 5};
  std::vector<std::int32_t> bin = {0, 1, 2, 3, 4, 5};
  arrange_bins({encoder, llm, 6, 2}, bin);
  // microbatch 0: loads 1, 2; microbatch 2: 4, 3; microbatch 1: 5, 6.
  EXPECT_EQ(bin, (std::vector<std::int32_t>{1 * 2 + 1, 0, 2 * 2 + 0, 2 * 2 + 1, 1, 1 * 2 + 0}));
}

TEST(ArrangeBins, KeepsBinsWhereTheRampWouldBreakACap) {
  // Four bins of one item each, 4 microbatches x dp 1. The ramp orders their loads 1 3 4 2, where two
  // consecutive microbatches hold 4, 7 and 6. Unchanged, 3 1 4 2, they hold 4, 5 and 6.
  const std::vector<double> encoder = {0, 0, 0, 0};
  const std::vector<double> llm = {3, 1, 4, 2};
  const std::vector<std::int32_t> before = {0, 1, 2, 3};
  const auto arranged = [&](double most) {
    BinProblem problem{encoder, llm, 4};
    problem.caps = {{"LLM tokens", llm, most, 2}};
    std::vector<std::int32_t> bin = before;
    arrange_bins(problem, bin);
    return bin;
  };
  EXPECT_EQ(arranged(6), before);
  EXPECT_EQ(arranged(7), (std::vector<std::int32_t>{1, 0, 2, 3}));
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
      EXPECT_FALSE(taken[to]);  // and bins are not merged
      taken[to] = true;
    }
    EXPECT_DOUBLE_EQ(largest_load(problem, bin), largest_load(problem, before));
  }
}

}  // namespace heuristics_test
}  // namespace dflop
