#include "solver/bins/karmarkar_karp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace {

TEST(KarmarkarKarp, WorkedExample) {
  // The textbook's 8, 7, 6, 5, 4 in two sets: 8 - 7 = 1 | 6 5 4 -> 6 - 5 = 1 | 4 1 1 -> 4 - 1 = 3 | 1 -> 3 -
  // 1 = 2. Sets: 6, 8 = 14 and 7, 5, 4 = 16.
  const std::vector<double> encoder = {100, 0, 0, 0, 0};  // not looked at
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

/// The method as it is written down, with every set of every partition: sums of the final sets.
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
    for (double& value : llm) value = 1 + random.uniform();  // no two spreads are the same
    BinProblem problem{zeros, llm, bins};
    problem.allow_empty = true;
    const std::vector<std::int32_t> bin = karmarkar_karp(problem);
    std::vector<double> sums(bins, 0.0);
    for (std::size_t i = 0; i < bin.size(); ++i) sums[bin[i]] += llm[i];
    const std::vector<double> expected = sums_of_the_textbook(llm, bins);
    for (int b = 0; b < bins; ++b) EXPECT_NEAR(sums[b], expected[b], 1e-12) << round;
  }
}

}  // namespace
}  // namespace dflop
