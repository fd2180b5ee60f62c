#include "solver/karmarkar_karp.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace dflop
