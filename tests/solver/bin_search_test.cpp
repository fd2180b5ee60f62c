#include "solver/bins/search.hpp"

#include <gtest/gtest.h>

namespace dflop {
namespace {

bool never() {
  return false;
}

/// Items of two bins without encoder time, those of bin 0 first.
struct TwoBins {
  std::vector<double> llm_s;
  std::vector<double> zeros;
  std::vector<std::int32_t> bin;

  TwoBins(const std::vector<double>& first, const std::vector<double>& second)
      : llm_s(first), zeros(first.size() + second.size(), 0.0), bin(first.size(), 0) {
    llm_s.insert(llm_s.end(), second.begin(), second.end());
    bin.resize(llm_s.size(), 1);
  }
  BinProblem problem() const { return {zeros, llm_s, 2}; }
};

// Bin 0 has 40,000 items of no time and then 10.5 + 10.2 + 9.3 = 30, bin 1 has 20 + 6 + 4.8 = 30.8. No single
// item helps: 20 against any gives 9.5 or more, 6 and 4.8 against nothing too, and the larger are in bin 0.
// Of pairs 6 + 4.8 against 10.5 is the best: 0.3 of the 0.8 go over.
TEST(BinSearch, PairsOfBinsWithMoreItemsThan16BitsCount) {
  std::vector<double> first(40'000, 0.0);
  first.insert(first.end(), {10.5, 10.2, 9.3});
  const TwoBins data(first, {20, 6, 4.8});
  const BinProblem problem = data.problem();
  BinSearch search(problem, 1.0, data.bin, Random(1));
  EXPECT_FALSE(search.exchange_items(never));
  EXPECT_TRUE(search.exchange_pairs(never));
  EXPECT_NEAR(search.largest(), 30.5, 1e-4);
  std::vector<std::int32_t> expected = data.bin;
  expected[40'000] = 1;
  expected[40'004] = expected[40'005] = 0;
  EXPECT_EQ(search.assignment(), expected);
}

// 999 items of 2 and one of 0.5 against one of 1997.6, which is 0.9 less: only that of 0.5 can go over.
TEST(BinSearch, EveryItemOfALargeBinIsLookedAt) {
  for (const std::size_t place : {0, 255, 256, 511, 512, 999}) {
    std::vector<double> first(1000, 2.0);
    first[place] = 0.5;
    const TwoBins data(first, {1997.6});
    const BinProblem problem = data.problem();
    BinSearch search(problem, 1.0, data.bin, Random(1));
    ASSERT_TRUE(search.exchange_items(never)) << place;
    EXPECT_EQ(search.assignment()[place], 1) << place;
    EXPECT_NEAR(search.largest(), 1998.1, 1e-2) << place;
    EXPECT_FALSE(search.exchange_items(never)) << place;
  }
}

// All items and loads are equal, so that nothing helps. 20,000 items against 20,001 offers are 25 million
// tries in all; a block of 256 against 1251 times 16 offers are 320,256.
TEST(BinSearch, AStopEndsALargeExchangeEarly) {
  const std::vector<double> ones(20'000, 1.0);
  const TwoBins data(ones, ones);
  const BinProblem problem = data.problem();
  BinSearch search(problem, 1.0, data.bin, Random(1));
  const auto always = [] { return true; };
  EXPECT_FALSE(search.exchange_items(always));
  EXPECT_FALSE(search.exchange_pairs(always));
  EXPECT_EQ(search.tries(), 320'256);
}

}  // namespace
}  // namespace dflop
