// Every pipeline schedule: its steps are complete, finish, and respect its memory limit.
#include "core/order/pipeline_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "core/program/raw_pipeline.hpp"
#include "tests/core/pipelines.hpp"

namespace dflop::testing {
namespace orders_test {

using Steps = std::vector<std::vector<OrderStep>>;

constexpr Op F = Op::forward;
constexpr Op B = Op::backward_input;
constexpr Op W = Op::backward_weight;

Steps steps_of(const PipelineShape& shape) {
  StepTimes times;
  times.forward.assign(static_cast<std::size_t>(shape.stages()) * shape.microbatches, Nanoseconds(10));
  times.backward = times.backward_weight = times.forward;
  times.message.assign(times.forward.size(), Nanoseconds(0));
  return pipeline_steps(shape, {times, {}});
}

TEST(PipelineSteps, ZbH1LagsByTheRank) {
  // 1F1B of 2 ranks. On rank 1 the weight parts lag one microbatch behind the input parts.
  const Steps expected = {
      {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {W, 0, 0}, {F, 0, 2}, {B, 0, 1}, {W, 0, 1}, {B, 0, 2}, {W, 0, 2}},
      {{F, 1, 0}, {B, 1, 0}, {F, 1, 1}, {B, 1, 1}, {W, 1, 0}, {F, 1, 2}, {B, 1, 2}, {W, 1, 1}, {W, 1, 2}}};
  EXPECT_EQ(steps_of({OrderKind::zb_h1, 2, 1, 3}), expected);
}

TEST(PipelineSteps, ZbH2WarmsUpTwiceAsDeepWhereThereAreMicrobatchesForIt) {
  // Rank 0 of 2: two warm-up forwards. With 2 microbatches, fewer than 2 x 2 - 1, the order equals ZB-H1.
  const std::vector<OrderStep> expected = {{F, 0, 0}, {F, 0, 1}, {F, 0, 2}, {B, 0, 0}, {W, 0, 0},
                                           {B, 0, 1}, {W, 0, 1}, {B, 0, 2}, {W, 0, 2}};
  EXPECT_EQ(steps_of({OrderKind::zb_h2, 2, 1, 3})[0], expected);
  EXPECT_EQ(steps_of({OrderKind::zb_h2, 2, 1, 2}), steps_of({OrderKind::zb_h1, 2, 1, 2}));
}

TEST(PipelineSteps, InterleavedTakesChunksInTurn) {
  // Rank 1 of 2 with stages 1 and 3 and 2 microbatches: (2 - 1) 2 + 0 = 2 warm-up forwards.
  const std::vector<OrderStep> expected = {{F, 1, 0},
                                           {F, 1, 1},
                                           {F, 3, 0},
                                           {Op::backward, 3, 0},
                                           {F, 3, 1},
                                           {Op::backward, 3, 1},
                                           {Op::backward, 1, 0},
                                           {Op::backward, 1, 1}};
  EXPECT_EQ(steps_of({OrderKind::interleaved, 2, 2, 2})[1], expected);
}

/// Microbatches 0 to 2 form a group on 2 ranks, because a last group of 1 would have fewer than the ranks.
/// The last rank has (chunks - 1) * 3 = 3 warm-up forwards, and then a forward and a backward in turn.
TEST(PipelineSteps, InterleavedTakesLargerGroupsIfTheRanksDoNotDivideTheMicrobatches) {
  const std::vector<OrderStep> expected = {{F, 1, 0},
                                           {F, 1, 1},
                                           {F, 1, 2},
                                           {F, 3, 0},
                                           {Op::backward, 3, 0},
                                           {F, 3, 1},
                                           {Op::backward, 3, 1},
                                           {F, 3, 2},
                                           {Op::backward, 3, 2},
                                           {Op::backward, 1, 0},
                                           {Op::backward, 1, 1},
                                           {Op::backward, 1, 2}};
  EXPECT_EQ(steps_of({OrderKind::interleaved, 2, 2, 3})[1], expected);
}

/// Sizes of groups, by hand. 13 on 4: with groups of 4, 5 or 6, the last group would have 1, 3 or 1.
TEST(InterleavedGroup, IsTheSmallestWhoseLastGroupFeedsAllRanks) {
  const auto groups = [](int ranks, std::vector<int> microbatches) {
    for (int& m : microbatches) m = interleaved_group(ranks, m);
    return microbatches;
  };
  EXPECT_EQ(groups(4, {4, 8, 12, 64}), (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(groups(4, {1, 2, 3}), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(groups(4, {5, 6, 7, 9, 10, 11, 13, 14}), (std::vector<int>{5, 6, 7, 5, 5, 6, 7, 5}));
  EXPECT_EQ(groups(1, {1, 2, 7}), (std::vector<int>{1, 1, 1}));
  // torch makes max(1, m / ranks) equal groups, if possible.
  for (int ranks = 1; ranks <= 12; ++ranks) {
    for (int m = 1; m <= 100; ++m) {
      const int rounds = std::max(1, m / ranks);
      if (m % rounds == 0) {
        EXPECT_EQ(interleaved_group(ranks, m), m / rounds) << ranks << " " << m;
      }
      if (m >= ranks) {
        const int group = interleaved_group(ranks, m);
        EXPECT_GE(group, ranks);
        EXPECT_TRUE(m % group == 0 || m % group >= ranks) << ranks << " " << m;
      }
    }
  }
}

TEST(PipelineSteps, OneChunkInterleavedIsOneFOneB) {
  EXPECT_EQ(steps_of({OrderKind::interleaved, 4, 1, 8}), steps_of({OrderKind::one_f_one_b, 4, 1, 8}));
}

TEST(RankOfStage, GoesRoundOrDownAndUp) {
  const PipelineShape round{OrderKind::interleaved, 3, 2, 3};
  const PipelineShape v{OrderKind::zb_v, 3, 2, 3};
  const int expected_round[] = {0, 1, 2, 0, 1, 2};
  const int expected_v[] = {0, 1, 2, 2, 1, 0};
  for (int s = 0; s < 6; ++s) {
    EXPECT_EQ(rank_of_stage(round, s), expected_round[s]);
    EXPECT_EQ(rank_of_stage(v, s), expected_v[s]);
  }
}

/// Runs the steps as far as data dependencies allow, and returns how many are left.
std::size_t stuck_steps(const PipelineShape& shape, const Steps& steps) {
  std::map<std::tuple<Op, int, int>, bool> done;
  std::vector<std::size_t> next(steps.size(), 0);
  const auto ready = [&](const OrderStep& step) {
    const int s = step.stage;
    const int j = step.microbatch;
    if (step.op == F) return s == 0 || done[{F, s - 1, j}];
    if (step.op == W) return done[{B, s, j}];
    return done[{F, s, j}] && (s + 1 == shape.stages() || done[{step.op, s + 1, j}]);
  };
  std::size_t left = 0;
  for (const auto& list : steps) left += list.size();
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < steps.size(); ++r) {
      for (; next[r] < steps[r].size() && ready(steps[r][next[r]]); ++next[r]) {
        const OrderStep& step = steps[r][next[r]];
        done[{step.op, step.stage, step.microbatch}] = moved = true;
        --left;
      }
    }
  }
  return left;
}

/// Every rank runs each operation once for every microbatch of its stages, in order.
void expect_complete(const PipelineShape& shape, const Steps& steps) {
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(shape.all_ranks()));
  std::map<std::tuple<Op, int>, int> count;
  for (int r = 0; r < shape.all_ranks(); ++r) {
    std::map<std::tuple<Op, int>, int> last;
    for (const OrderStep& step : steps[r]) {
      ASSERT_EQ(rank_of_stage(shape, step.stage, step.microbatch), r);
      const auto [previous, is_first] = last.try_emplace({step.op, step.stage}, -1);
      ASSERT_LT(previous->second, step.microbatch);
      previous->second = step.microbatch;
      ++count[{step.op, step.stage}];
    }
  }
  const bool split = splits_backward(shape.kind);
  ASSERT_EQ(count.size(), static_cast<std::size_t>(shape.stages() * (split ? 3 : 2)));
  for (const auto& [key, microbatches] : count) {
    ASSERT_EQ(microbatches, shape.microbatches);
    ASSERT_NE(std::get<Op>(key), split ? Op::backward : B);
  }
}

/// Max chunks of microbatches that a rank may hold from forward to backward, as the schedule promises.
int most_held(const PipelineShape& shape, int rank) {
  const int all = shape.chunks * shape.microbatches;
  switch (shape.kind) {
    case OrderKind::gpipe:
      return all;
    case OrderKind::one_f_one_b:  // the warm-up plus one
      return std::min(all, shape.ranks - rank);
    case OrderKind::interleaved:
      if (shape.chunks == 1) return std::min(all, shape.ranks - rank);
      return std::min(all, 2 * (shape.ranks - rank - 1) +
                               (shape.chunks - 1) * interleaved_group(shape.ranks, shape.microbatches) + 1);
    case OrderKind::zb_h1:
      return std::min(all, shape.ranks);
    case OrderKind::zb_h2:
      return std::min(all, 2 * shape.ranks - 1);
    case OrderKind::zb_v:
      return std::min(all, 2 * shape.ranks);
    case OrderKind::eager_1f1b:
      return std::min(all, 2 * (shape.ranks - rank) - 1);
    case OrderKind::encoder_in_bubbles:  // the LLM's chunks, as 1f1b
    case OrderKind::three_phase:
    case OrderKind::on_demand:
      break;
  }
  return std::min(all, shape.ranks - rank);
}

/// Max microbatches held at once, not counting stage `ignored`.
int held(const std::vector<OrderStep>& steps, int ignored = -1) {
  int now = 0;
  int most = 0;
  for (const OrderStep& step : steps) {
    if (step.stage == ignored) continue;
    if (step.op == F) most = std::max(most, ++now);
    if (step.op == Op::backward || step.op == W) --now;
  }
  return most;
}

/// Returns the steps of the encoder among a rank's steps.
std::vector<OrderStep> encoder_steps(const std::vector<OrderStep>& steps) {
  std::vector<OrderStep> encoder;
  std::ranges::copy_if(steps, std::back_inserter(encoder),
                       [](const OrderStep& step) { return step.stage == 0; });
  return encoder;
}

TEST(PipelineSteps, AreCompleteEndAndKeepTheirMemoryWhateverTheTimes) {
  Random random(3);
  for_each_shape(8, 24, 4, [&](const PipelineShape& shape) {
    const StepTimes times = random_times(random, shape);
    const Steps steps = pipeline_steps(shape, {times, {}});
    expect_complete(shape, steps);
    EXPECT_EQ(stuck_steps(shape, steps), 0u);
    for (int r = 0; r < shape.ranks; ++r) {
      EXPECT_LE(held(steps[r], shape.spreads_encoder() ? 0 : -1), most_held(shape, r)) << "rank " << r;
    }
  });
}

// A leading stage holds one microbatch more than the first chunk of the rank that it feeds.
TEST(PipelineSteps, OfLeadingStagesAreCompleteAndEnd) {
  Random random(5);
  for_each_shape(4, 12, 3, [&](PipelineShape shape) {
    if (shape.spreads_encoder()) return;
    for (shape.leading = 1; shape.leading <= 3; ++shape.leading) {
      const Steps steps = pipeline_steps(shape, {random_times(random, shape), {}});
      expect_complete(shape, steps);
      EXPECT_EQ(stuck_steps(shape, steps), 0u);
      std::vector<OrderStep> first_chunk;
      for (const OrderStep& step : steps[shape.leading]) {
        if (step.stage == shape.leading) first_chunk.push_back(step);
      }
      EXPECT_EQ(held(steps[shape.leading - 1]), std::min(held(first_chunk) + 1, shape.microbatches));
    }
  });
}

// A leading stage derived from the first stage of 1F1B makes a longer 1F1B.
TEST(PipelineSteps, LeadingStagesOfOneFOneBMakeALongerOneFOneB) {
  for (int leading = 1; leading < 4; ++leading) {
    EXPECT_EQ(steps_of({OrderKind::interleaved, 3, 1, 6, leading}),
              steps_of({OrderKind::one_f_one_b, 3 + leading, 1, 6}));
  }
}

// Without limits rank 0 of 3 would hold 2 x 3 - 1 = 5 microbatches, rank 1 3, rank 2 1. Limits of 4 and 2
// reduce this to 4, 2, 1. A limit of 2 on the first rank also limits the second to 2: it could never get a
// third.
TEST(PipelineSteps, EagerOneFOneBHoldsWhatItsLimitsAllow) {
  const auto held_of = [](const std::vector<int>& limits) {
    const Steps steps = pipeline_steps({OrderKind::eager_1f1b, 3, 1, 9}, {{}, limits});
    EXPECT_EQ(stuck_steps({OrderKind::eager_1f1b, 3, 1, 9}, steps), 0u);
    return std::vector<int>{held(steps[0]), held(steps[1]), held(steps[2])};
  };
  EXPECT_EQ(held_of({}), (std::vector<int>{5, 3, 1}));
  EXPECT_EQ(held_of({4, 2, 9}), (std::vector<int>{4, 2, 1}));
  EXPECT_EQ(held_of({2, 9, 9}), (std::vector<int>{2, 2, 1}));
  EXPECT_EQ(held_of({1, 1, 1}), (std::vector<int>{1, 1, 1}));
  const std::vector<OrderStep> expected = {
      {F, 1, 0}, {F, 1, 1}, {F, 1, 2}, {Op::backward, 1, 0}, {Op::backward, 1, 1}, {Op::backward, 1, 2}};
  EXPECT_EQ(pipeline_steps({OrderKind::eager_1f1b, 3, 1, 3})[1], expected);
}

TEST(PipelineSteps, EncoderInBubblesHoldsWhatItsLimitsAllow) {
  Random random(6);
  for (int p = 1; p <= 4; ++p) {
    for (int m = 1; m <= 13; ++m) {
      const PipelineShape shape{OrderKind::encoder_in_bubbles, p, 1, m};
      OrderTables tables{random_times(random, shape), {}};
      for (int r = 0; r < p; ++r) tables.most_held.push_back(1 + static_cast<int>(random.below(3)));
      const Steps steps = pipeline_steps(shape, tables);
      expect_complete(shape, steps);
      EXPECT_EQ(stuck_steps(shape, steps), 0u);
      for (int r = 0; r < p; ++r) {
        EXPECT_LE(held(encoder_steps(steps[r])), tables.most_held[r]);
      }
    }
  }
}

constexpr Op kWhole = Op::backward;

// Two ranks, five microbatches. Rank 1 encodes 1 and 3 before the LLM's 1f1b, and goes back through them
// after it.
TEST(PipelineSteps, ThreePhaseEncodesBeforeAndAfterTheLlm) {
  const std::vector<OrderStep> expected = {{F, 0, 1},      {F, 0, 3},      {F, 2, 0}, {kWhole, 2, 0},
                                           {F, 2, 1},      {kWhole, 2, 1}, {F, 2, 2}, {kWhole, 2, 2},
                                           {F, 2, 3},      {kWhole, 2, 3}, {F, 2, 4}, {kWhole, 2, 4},
                                           {kWhole, 0, 1}, {kWhole, 0, 3}};
  EXPECT_EQ(steps_of({OrderKind::three_phase, 2, 1, 5})[1], expected);
}

// Two ranks, four microbatches, so units {0, 1} and {2, 3}. Rank 0 encodes 2 just before its LLM stage needs
// 2, and goes back through 0 after its backward of 1, with which unit {0, 1} is complete. Rank 1 encodes 3
// when rank 0 is about to need 2, which is before rank 1's forward of 1, and goes back through 1 when rank 0
// has surely run its backward of 1, which is after rank 1's backward of 2.
TEST(PipelineSteps, OnDemandEncodesAUnitWhenTheFirstRankNeedsIt) {
  const Steps steps = steps_of({OrderKind::on_demand, 2, 1, 4});
  const std::vector<OrderStep> first = {{F, 0, 0}, {F, 1, 0},      {F, 1, 1},      {kWhole, 1, 0},
                                        {F, 0, 2}, {F, 1, 2},      {kWhole, 1, 1}, {kWhole, 0, 0},
                                        {F, 1, 3}, {kWhole, 1, 2}, {kWhole, 1, 3}, {kWhole, 0, 2}};
  const std::vector<OrderStep> second = {{F, 0, 1},      {F, 2, 0},      {kWhole, 2, 0}, {F, 0, 3},
                                         {F, 2, 1},      {kWhole, 2, 1}, {F, 2, 2},      {kWhole, 2, 2},
                                         {kWhole, 0, 1}, {F, 2, 3},      {kWhole, 2, 3}, {kWhole, 0, 3}};
  EXPECT_EQ(steps[0], first);
  EXPECT_EQ(steps[1], second);
}

TEST(PipelineSteps, HoldEncoderMicrobatchesOfThreeUnitsOrOfAll) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 1; m <= 40; ++m) {
      for (int r = 0; r < p; ++r) {
        const int all = r < m ? (m - r + p - 1) / p : 0;
        const auto held_of = [&](OrderKind kind) {
          return held(encoder_steps(steps_of({kind, p, 1, m})[r]));
        };
        EXPECT_EQ(held_of(OrderKind::three_phase), all);
        EXPECT_LE(held_of(OrderKind::on_demand), std::min(3, all)) << p << " " << m << " " << r;
      }
    }
  }
}

// With equal times the limits are reached: rank 0 of ZB-H1, ZB-H2 and 1F1B warms up to its limit.
TEST(PipelineSteps, ReachTheirMemoryOnTheFirstRank) {
  for (const OrderKind kind : {OrderKind::gpipe, OrderKind::one_f_one_b, OrderKind::interleaved,
                               OrderKind::zb_h1, OrderKind::zb_h2}) {
    const PipelineShape shape{kind, 4, kind == OrderKind::interleaved ? 3 : 1, 16};
    EXPECT_EQ(held(steps_of(shape)[0]), most_held(shape, 0)) << to_string(kind);
  }
}

TEST(PipelinePrograms, AreAccepted) {
  Random random(4);
  for_each_shape(8, 24, 4, [&](const PipelineShape& shape) {
    EXPECT_NO_THROW(verify(make_program(random_pipeline(random, shape)).program));
  });
}

}  // namespace orders_test
}  // namespace dflop::testing
