#include "solver/bins/local_search.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "solver/bins/heuristics.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace local_search_test {

/// Heavy-tailed items as in multimodal data: tiles of equal encoder time, and LLM times that grow with them.
struct HeavyTail {
  std::vector<double> encoder_s;
  std::vector<double> llm_s;
  std::vector<double> tokens;

  HeavyTail(std::uint64_t seed, int items) {
    Random random(seed);
    for (int i = 0; i < items; ++i) {
      const double tiles = std::floor(std::pow(30.0, random.uniform())) - 1;
      tokens.push_back(std::floor(700 * tiles + 100 + 900 * random.uniform()));
      encoder_s.push_back(tiles * 0.006);
      llm_s.push_back(tokens.back() * 1e-5 * (1 + tokens.back() / 57220));
    }
  }
};

TEST(LocalSearch, ReachesTheBoundIfBinsHoldManyItems) {
  for (const bool shared : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const HeavyTail items(seed, 1024);
      const BinProblem problem{items.encoder_s, items.llm_s, 64, 4, shared};
      const AssignmentSolution solution = local_search(problem, {seed});
      const double found = largest_load(problem, solution.bin);
      EXPECT_LE(found, solution.bound.count() * 1.0005) << shared << " " << seed;
      EXPECT_LT(found, largest_load(problem, lpt(problem)));
    }
  }
}

TEST(LocalSearch, ATightTokenCapCostsLittle) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const HeavyTail items(seed, 1024);
    BinProblem problem{items.encoder_s, items.llm_s, 64, 4, true};
    double sum = 0;
    for (const double t : items.tokens) sum += t;
    problem.caps.push_back({"LLM tokens", items.tokens, std::floor(1.05 * sum / 64)});
    const AssignmentSolution solution = local_search(problem, {seed});
    ASSERT_FALSE(solution.bin.empty());
    EXPECT_EQ(broken_cap(problem, solution.bin), std::nullopt);
    EXPECT_LE(largest_load(problem, solution.bin), solution.bound.count() * 1.001) << seed;
  }
}

// A cap that stops LPT: by load the items go 10 | 9 8, with tokens 1 | 6 6 and a cap of 8.
TEST(LocalSearch, ObeysCapsIfLptFindsNoBin) {
  const std::vector<double> zeros(4, 0.0);
  const std::vector<double> llm = {10, 9, 2, 1};
  const std::vector<double> tokens = {4, 4, 6, 2};
  BinProblem problem{zeros, llm, 2};
  problem.caps.push_back({"tokens", tokens, 8});
  EXPECT_TRUE(lpt(problem).empty());  // 10 | 9, then 6 fits nowhere
  const AssignmentSolution solution = local_search(problem, {});
  ASSERT_EQ(solution.bin.size(), 4u);
  EXPECT_EQ(broken_cap(problem, solution.bin), std::nullopt);
  EXPECT_DOUBLE_EQ(largest_load(problem, solution.bin), 19.0);  // 10 9 | 2 1 is the only way
}

TEST(LocalSearch, WindowsOfMicrobatchesStayUnderTheirCap) {
  Random random(8);
  int found = 0;
  for (int round = 0; round < 30; ++round) {
    const HeavyTail items(round, 64);
    BinProblem problem{items.encoder_s, items.llm_s, 16, 2, round % 2 == 0};
    double sum = 0;
    for (const double t : items.tokens) sum += t;
    problem.caps.push_back({"bytes", items.tokens, 1.25 * sum / 16 * 3, 3});
    problem.caps.push_back({"encoder bytes", items.encoder_s, 2.0 * 30 * 0.006 * 64 / 8, 2, true});
    const AssignmentSolution solution = local_search(problem, {1, 200'000});
    if (solution.bin.empty()) continue;
    ++found;
    EXPECT_EQ(broken_cap(problem, solution.bin), std::nullopt);
  }
  EXPECT_GT(found, 20);
}

TEST(LocalSearch, TakesSeventyThousandItemsInTwoBins) {
  Random random(3);
  const std::vector<double> zeros(70'000, 0.0);
  std::vector<double> llm(zeros.size());
  for (double& value : llm) value = random.below(2) == 0 ? 2 : 7;
  const BinProblem problem{zeros, llm, 2};
  const AssignmentSolution solution = local_search(problem, {1});
  ASSERT_EQ(solution.bin.size(), llm.size());
  EXPECT_LE(largest_load(problem, solution.bin), largest_load(problem, lpt(problem)));
}

// Exchanges do not handle thirty caps: an assignment that satisfies them is returned, with the reason.
TEST(LocalSearch, ManyCapsAreObeyedWithoutASearch) {
  const std::vector<double> zeros(5, 0.0);
  const std::vector<double> llm = {3, 3, 2, 2, 2};
  const std::vector<double> one(5, 1.0);
  BinProblem problem{zeros, llm, 2};
  problem.caps.assign(30, {"items", one, 3});
  const AssignmentSolution solution = local_search(problem, {});
  EXPECT_EQ(solution.status, ScheduleStatus::fallback);
  EXPECT_EQ(solution.reason, "found 30 caps, but exchanges support at most 24");
  ASSERT_EQ(solution.bin.size(), 5u);
  EXPECT_EQ(broken_cap(problem, solution.bin), std::nullopt);
}

// Two items of 3 do not fit together in a bin of 5, so three of them need three bins.
TEST(LocalSearch, SaysThatNothingObeysTheCaps) {
  const std::vector<double> times(3, 1.0);
  const std::vector<double> tokens(3, 3.0);
  BinProblem problem{times, times, 2};
  problem.caps.push_back({"tokens", tokens, 5});
  const AssignmentSolution solution = local_search(problem, {1, 1000});
  EXPECT_TRUE(solution.bin.empty());
  EXPECT_EQ(solution.status, ScheduleStatus::infeasible);
  EXPECT_EQ(solution.reason, "no assignment that obeys all caps was found");
}

bool never() {
  return false;
}

/// Items of two bins without encoder time; the items of bin 0 come first.
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

// Bin 0 has 40,000 items of no time and then 10.5 + 10.2 + 9.3 = 30; bin 1 has 20 + 6 + 4.8 = 30.8. Moving a
// single item does not help: exchanging 20 for any item moves at least 9.5, moving 6 or 4.8 for nothing is
// too much, and all items larger than these are in bin 0. Among pairs, exchanging 6 + 4.8 for 10.5 is best:
// it moves 0.3 of the difference of 0.8.
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

// 999 items of 2 and one of 0.5 against one of 1997.6, which is 0.9 less: only the item of 0.5 can move.
TEST(BinSearch, EveryItemOfALargeBinIsChecked) {
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

// All items and loads are equal, so no exchange helps. 20,000 items against 20,001 offers are 25 million
// tries in total; a block of 256 against 1251 times 16 offers is 320,256.
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

}  // namespace local_search_test
}  // namespace dflop
