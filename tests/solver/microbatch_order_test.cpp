// The orders of microbatches of published systems, on pipelines whose waits can be worked out by hand.
#include "solver/schedulers/microbatch_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/support/random.hpp"
#include "solver/bins/group_lpt.hpp"
#include "solver/bins/heuristics.hpp"
#include "solver/schedulers/methods.hpp"
#include "tests/rounds.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace microbatch_order_test {

TEST(GroupLpt, WorkedExample) {
  // Two dp ranks with two microbatches each. LLM times in decreasing order: 8, 7, 6, 5, 4, 3.
  //   8: rank 0.  7: rank 1.  6: rank 1 would have 13, rank 0 14: rank 1 (13).  5: rank 0 (13).
  //   4: rank 0 (17) and rank 1 (17): the first, rank 0.  3: rank 1 (16).
  // Rank 0 has 8, 5, 4: its microbatches 8 and 5 + 4. Rank 1 has 7, 6, 3: 7 and 6 + 3.
  const std::vector<double> encoder(6, 0.0);
  const std::vector<double> llm = {3, 4, 5, 6, 7, 8};
  EXPECT_EQ(group_lpt({encoder, llm, 4, 2}), (std::vector<std::int32_t>{3, 2, 2, 3, 1, 0}));
}

// Longest processing time first is at most 4/3 - 1/(3 n) times as long as the best assignment to n ranks
// (Graham 1969).
TEST(GroupLpt, IsWithinFourThirdsOfTheBestLoadOfARank) {
  Random random(11);
  for (int round = 0; round < testing::rounds(150); ++round) {
    const int ranks = 2 + static_cast<int>(random.below(2));
    const testing::RandomItems data(random, ranks + static_cast<int>(random.below(6)), false);
    const std::vector<double> zeros(data.llm_s.size(), 0.0);
    const BinProblem problem{zeros, data.llm_s, ranks, ranks};  // one microbatch
    const double best = testing::brute_force(problem);
    EXPECT_LE(largest_load(problem, group_lpt(problem)), (4.0 / 3 - 1.0 / (3 * ranks)) * best * (1 + 1e-12));
  }
}

TEST(GroupLpt, FillsEveryBin) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    const int dp = 1 + static_cast<int>(random.below(4));
    const int bins = dp * (1 + static_cast<int>(random.below(5)));
    testing::RandomItems data(random, bins + static_cast<int>(random.below(9)), false);
    if (round % 4 == 0) std::ranges::fill(data.llm_s, 0.0);
    BinProblem problem = data.problem(bins);
    problem.dp = dp;
    const std::vector<std::int32_t> bin = group_lpt(problem);
    ASSERT_EQ(bin.size(), problem.items());
    EXPECT_TRUE(fills_bins(problem, bin));
  }
}

TEST(GroupLpt, ObeysCaps) {
  // Two microbatches of one dp rank. Without a cap, 5 and 3 + 3. At most one item of 3 tokens fits a bin.
  const std::vector<double> encoder(3, 0.0);
  const std::vector<double> llm = {5, 3, 3};
  const std::vector<double> tokens = {1, 3, 3};
  BinProblem problem{encoder, llm, 2, 1};
  EXPECT_EQ(group_lpt(problem), (std::vector<std::int32_t>{0, 1, 1}));
  problem.caps = {{"tokens", tokens, 4}};
  EXPECT_EQ(group_lpt(problem), (std::vector<std::int32_t>{0, 1, 0}));
  problem.caps = {{"tokens", tokens, 3}};
  EXPECT_EQ(group_lpt(problem), (std::vector<std::int32_t>{}));
}

/// Microbatches of one item each on dp ranks, with a 1F1B pipeline of one encoder rank and `ranks` - 1 LLM
/// ranks. A backward takes twice as long as a forward.
struct OneItemEach {
  std::vector<double> encoder_s;
  std::vector<double> llm_s;
  LoadPipeline pipeline;
  AssignmentProblem problem;
  std::vector<std::int32_t> bin;

  OneItemEach(std::vector<double> encoder, std::vector<double> llm, int ranks, int dp = 1,
              OrderKind kind = OrderKind::one_f_one_b, int chunks = 1, int encoder_dp = 0)
      : encoder_s(std::move(encoder)),
        llm_s(std::move(llm)),
        pipeline(simple_load_pipeline({kind, ranks, chunks, static_cast<int>(llm_s.size()) / dp}, 1, dp,
                                      encoder_dp, 2)),
        problem{{encoder_s, llm_s, static_cast<int>(llm_s.size()), dp, encoder_dp > 0},
                &pipeline,
                {encoder_s, llm_s}},
        bin(numbered(llm_s.size())) {}
  OneItemEach(const OneItemEach&) = delete;

  double makespan() const { return problem.objective(bin); }
};

// Two ranks: forwards of a, b, ... on the encoder's rank, then on the LLM's. The LLM takes 4 s forward and 8
// s backward. Rank 0 runs two forwards before its first backward, so one microbatch is kept for the end.
// Encoder times 1 2 3 5 9 13:
//   1 comes first, 2 last. 3 5 9 13 are left.
//   Interval 0: the forward of 1 ends at 1, its LLM forward at 5, its LLM backward at 13: 12 s. Nearest: 13.
//   Interval 1: 13 has run on rank 0 from 1 to 14, then the backward of 1 ends at 16. The LLM's forward of 13
//   ends at 18, and its backward at 26: 10 s. Nearest: 9.
//   Interval 2: the forward of 9 ends at 25, and the backward of 13 takes from 26 to 52. The LLM's forward of
//   9 follows its backward of 13, from 26 to 30, and its backward ends at 38: no wait. Nearest to 0: 3.
//   The last one is 5.
TEST(FillIntervals, WorkedExample) {
  OneItemEach data({1, 2, 3, 5, 9, 13}, {4, 4, 4, 4, 4, 4}, 2);
  ReplicaRun replica(data.problem, data.bin);
  ASSERT_TRUE(replica.has_intervals());
  EXPECT_EQ(replica.warm_up(), 2);
  EXPECT_EQ(replica.forward(0, 4), 9);
  EXPECT_EQ(replica.interval(0, {0}, 0), 12);
  EXPECT_EQ(replica.interval(0, {0, 5}, 1), 10);
  EXPECT_EQ(replica.interval(0, {0, 5, 4}, 2), 0);
  fill_intervals(data.problem, data.bin);
  // Positions of 1 2 3 5 9 13 in the order 1 13 9 3 5 2.
  EXPECT_EQ(data.bin, (std::vector<std::int32_t>{0, 5, 3, 4, 2, 1}));
}

// Three ranks: two microbatches fill the first interval, and two are kept for the end. The LLM takes 1 s
// forward and 2 s backward on each rank. Encoder times 1 2 3 4 5 6 7: 1 first, 3 and 2 last. The first
// interval is 1 + 1 + 2 + 2 = 6 s: of 4 + 5, 5 + 6 and 6 + 7, 4 + 5 is nearest. Rank 0 then runs forwards of
// 4 and 5 until 10 and the backward of 1 until 12. LLM forwards of 4 are at 5 and 6, backwards until 10 on
// both ranks: no wait. Nearest to 0 are 6, then 7.
TEST(FillIntervals, TheFirstIntervalGetsSeveral) {
  OneItemEach data({1, 2, 3, 4, 5, 6, 7}, {1, 1, 1, 1, 1, 1, 1}, 3);
  fill_intervals(data.problem, data.bin);
  EXPECT_EQ(data.bin, (std::vector<std::int32_t>{0, 6, 5, 1, 2, 3, 4}));
}

TEST(FillIntervals, OneRankOrFewMicrobatchesAreInOrderOfSize) {
  OneItemEach one_rank({0, 0, 0, 0}, {4, 2, 3, 1}, 1);
  one_rank.pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 1, 1, 4}, 0, 1, 0, 2);
  fill_intervals(one_rank.problem, one_rank.bin);  // 1 first; every interval is 0, and 2, 3, 4 are nearest
  EXPECT_EQ(one_rank.bin, (std::vector<std::int32_t>{3, 1, 2, 0}));
  OneItemEach few({3, 1, 2}, {1, 1, 1}, 4);
  fill_intervals(few.problem, few.bin);  // 1 first, and both others are kept for the end: 3, then 2
  EXPECT_EQ(few.bin, (std::vector<std::int32_t>{1, 0, 2}));
}

TEST(FillIntervals, OtherOrdersGetArrangedBins) {
  for (const OrderKind kind : {OrderKind::interleaved, OrderKind::zb_h1}) {
    OneItemEach data({4, 1, 3, 2}, {1, 2, 3, 4}, 2, 1, kind, kind == OrderKind::interleaved ? 2 : 1);
    std::vector<std::int32_t> expected = data.bin;
    arrange_bins(data.problem.bins, expected);
    fill_intervals(data.problem, data.bin);
    EXPECT_EQ(data.bin, expected);
  }
}

// The dp ranks share the encoder: two encoder ranks for two LLM ranks. Each dp rank is ordered as if the
// other had the same microbatches, so rank 0 has the order of a pipeline of its own, whatever rank 1 has.
TEST(FillIntervals, EveryDpRankIsOrderedByItself) {
  Random random(8);
  for (int round = 0; round < testing::rounds(100); ++round) {
    const std::size_t count = 3 + random.below(6);
    std::vector<double> encoder;
    std::vector<double> llm;
    for (std::size_t i = 0; i < 2 * count; ++i) {
      encoder.push_back(random.uniform());
      llm.push_back(random.uniform());
    }
    OneItemEach both(encoder, llm, 3, 2, OrderKind::one_f_one_b, 1, 2);
    fill_intervals(both.problem, both.bin);
    for (const std::size_t rank : {0, 1}) {
      std::vector<double> its_encoder;
      std::vector<double> its_llm;
      for (std::size_t m = 0; m < count; ++m) {
        its_encoder.push_back(encoder[2 * m + rank]);
        its_llm.push_back(llm[2 * m + rank]);
      }
      OneItemEach own(its_encoder, its_llm, 3);
      fill_intervals(own.problem, own.bin);
      for (std::size_t m = 0; m < count; ++m) {
        EXPECT_EQ(both.bin[2 * m + rank], own.bin[m] * 2 + static_cast<int>(rank)) << "round " << round;
      }
    }
  }
}

// Two ranks; encoder and LLM take 1 s and 2 s forward for the first microbatch, 2 s and 1 s for the second,
// and twice that backward. In the order 1, 2: forwards until 1 and 3, the LLM's from 1 to 3, its backward to
// 7, the encoder's to 9; the LLM's of 2 from 7 to 8 and to 10, the encoder's to 14. In the order 2, 1: the
// encoder's forwards until 2 and 3, the LLM's of 2 from 2 to 3, its backward to 5, the encoder's to 9; the
// LLM's of 1 from 5 to 7 and to 11, the encoder's to 13. So 2, inserted second, comes first.
TEST(InsertInOrder, WorkedExample) {
  OneItemEach data({1, 2}, {2, 1}, 2);
  EXPECT_EQ(ReplicaRun(data.problem, data.bin).makespan(0, {0, 1}), 14);
  EXPECT_EQ(ReplicaRun(data.problem, data.bin).makespan(0, {1, 0}), 13);
  insert_in_order(data.problem, data.bin);
  EXPECT_EQ(data.bin, (std::vector<std::int32_t>{1, 0}));
}

/// Returns the makespan of a pipeline that has only these microbatches.
double makespan_of(const OneItemEach& data, const std::vector<std::int32_t>& order) {
  std::vector<double> encoder;
  std::vector<double> llm;
  for (const std::int32_t m : order) {
    encoder.push_back(data.encoder_s[m]);
    llm.push_back(data.llm_s[m]);
  }
  return OneItemEach(encoder, llm, data.pipeline.ranks()).makespan();
}

// Each microbatch is at its best position among those with less encoder time. The result is near the best of
// all orders, and often is the best.
TEST(InsertInOrder, InsertsAtTheBestPosition) {
  Random random(6);
  int best_orders = 0;
  const int rounds = testing::rounds(60);
  for (int round = 0; round < rounds; ++round) {
    const int count = 2 + static_cast<int>(random.below(5));
    const testing::RandomItems items(random, count, false);
    OneItemEach data(items.encoder_s, items.llm_s, 2 + static_cast<int>(random.below(2)));
    insert_in_order(data.problem, data.bin);
    std::vector<std::int32_t> order(count);
    for (int m = 0; m < count; ++m) order[data.bin[m]] = m;
    std::vector<std::int32_t> sorted = numbered(count);
    std::ranges::stable_sort(sorted, {}, [&](std::int32_t m) { return data.encoder_s[m]; });
    for (int inserted = 1; inserted < count; ++inserted) {
      std::vector<std::int32_t> so_far;
      for (const std::int32_t m : order) {
        if (std::find(sorted.begin(), sorted.begin() + inserted + 1, m) != sorted.begin() + inserted + 1)
          so_far.push_back(m);
      }
      const double found = makespan_of(data, so_far);
      std::erase(so_far, sorted[inserted]);
      for (int p = 0; p <= inserted; ++p) {
        std::vector<std::int32_t> other = so_far;
        other.insert(other.begin() + p, sorted[inserted]);
        EXPECT_LE(found, makespan_of(data, other) * (1 + 1e-12)) << "round " << round;
      }
    }
    std::vector<std::int32_t> all = numbered(count);
    double least = std::numeric_limits<double>::infinity();
    do {
      least = std::min(least, makespan_of(data, all));
    } while (std::next_permutation(all.begin(), all.end()));
    const double found = data.makespan();
    EXPECT_GE(found, least * (1 - 1e-12));
    EXPECT_LE(found, least * 1.25) << "round " << round;
    best_orders += found <= least * (1 + 1e-12) ? 1 : 0;
  }
  EXPECT_GE(best_orders, rounds / 3);
}

// The random scheduler makes the same bins, in another order.
TEST(InsertInOrder, KeepsRandomBins) {
  Random random(3);
  const testing::RandomItems items(random, 40, false);
  const BinProblem bins{items.encoder_s, items.llm_s, 10, 2};
  const LoadPipeline pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 3, 1, 5}, 1, 2, 0, 2);
  const AssignmentProblem problem{bins, &pipeline, {items.encoder_s, items.llm_s}};
  const AssignmentSolution at_random = find_method("random").solve(problem, {7});
  const AssignmentSolution ordered = find_method("maestro").solve(problem, {7});
  std::map<std::int32_t, std::int32_t> place;
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_EQ(place.try_emplace(at_random.bin[i], ordered.bin[i]).first->second, ordered.bin[i]);
  EXPECT_EQ(place.size(), 10u);
  EXPECT_LT(ordered.value, at_random.value);
}

// A run of all microbatches of the only dp rank is the pipeline itself.
TEST(ReplicaRun, HasThePipelinesMakespan) {
  Random random(9);
  for (int round = 0; round < testing::rounds(100); ++round) {
    const int count = 1 + static_cast<int>(random.below(7));
    const testing::RandomItems items(random, count, false);
    const auto kind = round % 2 == 0 ? OrderKind::one_f_one_b : OrderKind::gpipe;
    OneItemEach data(items.encoder_s, items.llm_s, 1 + static_cast<int>(random.below(4)), 1, kind);
    ReplicaRun replica(data.problem, data.bin);
    EXPECT_DOUBLE_EQ(replica.makespan(0, data.bin), data.makespan());
    // The first microbatches by themselves are a pipeline with fewer of them.
    const int part = 1 + static_cast<int>(random.below(count));
    const std::vector<double> encoder(items.encoder_s.begin(), items.encoder_s.begin() + part);
    const std::vector<double> llm(items.llm_s.begin(), items.llm_s.begin() + part);
    OneItemEach fewer(encoder, llm, data.pipeline.ranks(), 1, kind);
    EXPECT_DOUBLE_EQ(replica.makespan(0, numbered(part)), fewer.makespan()) << "round " << round;
  }
}

// Only the order of bins changes, and only on their own dp rank.
TEST(MicrobatchOrders, MoveWholeBinsOfADpRank) {
  Random random(12);
  for (int round = 0; round < testing::rounds(60); ++round) {
    const int dp = 1 + static_cast<int>(random.below(3));
    const int microbatches = 1 + static_cast<int>(random.below(6));
    const testing::RandomItems items(random, 3 * dp * microbatches, false);
    const int encoder_dp = static_cast<int>(random.below(3));
    OneItemEach data(items.encoder_s, items.llm_s, 2 + static_cast<int>(random.below(3)), dp,
                     OrderKind::one_f_one_b, 1, encoder_dp);
    data.problem.bins.bins = dp * microbatches;
    data.pipeline = simple_load_pipeline({OrderKind::one_f_one_b, 3, 1, microbatches}, 1, dp, encoder_dp, 2);
    for (std::int32_t& b : data.bin) b %= dp * microbatches;
    const std::vector<std::int32_t> before = data.bin;
    for (const Method& method : methods()) {
      if (method.order_bins == nullptr) continue;
      data.bin = before;
      method.order_bins(data.problem, data.bin);
      std::map<std::int32_t, std::set<std::int32_t>> moved;
      for (std::size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(data.bin[i] % dp, before[i] % dp);
        moved[before[i]].insert(data.bin[i]);
      }
      std::set<std::int32_t> all;
      for (const auto& [from, to] : moved) {
        EXPECT_EQ(to.size(), 1u) << method.name;
        all.insert(*to.begin());
      }
      EXPECT_EQ(all.size(), moved.size()) << method.name;
    }
  }
}

}  // namespace microbatch_order_test
}  // namespace dflop
