// Most of these conditions apply to a 1F1B pipeline of two stages and two microbatches.
//
// Forward 10, backward 20, messages 3 ms. Undisturbed:
//   stage 0: F0 0-10, F1 10-20, B0 46-66, B1 76-96
//   stage 1: F0 13-23, B0 23-43, F1 43-53, B1 53-73
#include "sim/conditions.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/support/random.hpp"
#include "sim/engine.hpp"
#include "sim/step_sequence.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace conditions_test {

constexpr Nanoseconds milliseconds(std::int64_t count) {
  return Nanoseconds(count * 1'000'000);
}

PricedProgram two_stages() {
  Pipeline pipeline;
  pipeline.stages = 2;
  pipeline.microbatches = 2;
  pipeline.message = milliseconds(3);
  return make_pipeline(pipeline);
}

Timeline run(const std::vector<Pause>& pauses, Detail detail = Detail::usage) {
  const PricedProgram priced = two_stages();
  return simulate(priced.program, priced.costs, detail, {nullptr, pauses});
}

TEST(Pauses, UndisturbedEndsAsDerived) {
  EXPECT_EQ(run({}).makespan, milliseconds(96));
}

// Stage 1 pauses from 30 to 37, inside B0: everything after it is 7 later. The pause counts as idle time.
TEST(Pauses, StretchRunningWork) {
  const Timeline timeline = run({{1, milliseconds(30), milliseconds(7)}}, Detail::spans);
  EXPECT_EQ(timeline.makespan, milliseconds(103));
  EXPECT_EQ(timeline.groups[1].busy, milliseconds(60));
  EXPECT_EQ(timeline.groups[1].bubble + timeline.groups[1].wait, milliseconds(43));
  for (const Span& span : timeline.spans) {
    if (span.rank == 1 && span.op == Op::backward && span.microbatch == 0) {
      EXPECT_EQ(span.start, milliseconds(23));
      EXPECT_EQ(span.duration, milliseconds(27));
    }
  }
}

// The pause of stage 1 lasts from 5 to 21; without it, stage 1 would be idle until 13. F0 begins at 21, 8
// later.
TEST(Pauses, DelayNewWork) {
  EXPECT_EQ(run({{1, milliseconds(5), milliseconds(16)}}).makespan, milliseconds(104));
}

// Between stage 0's F1, which ends at 20, and its B0, which begins at 46, a pause has no effect.
TEST(Pauses, CostNothingWhereTheGroupIsIdle) {
  EXPECT_EQ(run({{0, milliseconds(20), milliseconds(26)}}).makespan, milliseconds(96));
}

// Two pauses of one group inside B0 (23 to 43): 7 and 5 more.
TEST(Pauses, AddUp) {
  EXPECT_EQ(run({{1, milliseconds(25), milliseconds(7)}, {1, milliseconds(40), milliseconds(5)}}).makespan,
            milliseconds(108));
}

// As if two ranks of a group paused: B0 (23 to 43) stands still from 25 to 37, not for the sum of 7 and 10.
// The third pause lies inside the second.
TEST(Pauses, ThatOverlapCountOnce) {
  const Timeline timeline = run({{1, milliseconds(25), milliseconds(7)},
                                 {1, milliseconds(27), milliseconds(10)},
                                 {1, milliseconds(28), milliseconds(3)}});
  EXPECT_EQ(timeline.makespan, milliseconds(108));
  EXPECT_EQ(timeline.groups[1].busy, milliseconds(60));
}

// Stage 1 runs the previous step until 30; the time before is idle:
//   stage 1: F0 30-40, B0 40-60, F1 60-70, B1 70-90;  stage 0: B0 63-83, B1 93-113
// From 30 on that is 83. Stage 0 ends last, so both stages begin the next step as if together.
TEST(StepSequence, AGroupBeginsAtTheEndOfItsPreviousStep) {
  const PricedProgram priced = two_stages();
  StepStart start{{Nanoseconds(0), milliseconds(30)}, milliseconds(30)};
  const Timeline timeline = simulate_next(priced.program, priced.costs, Detail::usage, {}, &start);
  EXPECT_EQ(timeline.makespan, milliseconds(83));
  EXPECT_EQ(timeline.groups[1].busy, milliseconds(60));
  EXPECT_EQ(timeline.groups[1].begin, milliseconds(30));
  EXPECT_TRUE(timeline.spans.empty());
  EXPECT_EQ(start.begins, (std::vector{Nanoseconds(0), Nanoseconds(0)}));
  EXPECT_EQ(start.ended, Nanoseconds(0));
  EXPECT_EQ(simulate_next(priced.program, priced.costs, Detail::usage, {}, &start).makespan,
            milliseconds(96));
}

// Stage 1 fails at 30 in B0. Stage 0 has sent its two forwards and waits from 20 on for the gradient of
// microbatch 0.
TEST(Failures, NameTheFailedGroupAndWaitingGroups) {
  const Timeline timeline = run({{1, milliseconds(30), Pause::kForever}});
  ASSERT_EQ(timeline.stalls.size(), 2u);
  EXPECT_EQ(timeline.stalls[0], (Stall{0, Op::receive, 0, 0, milliseconds(20), false, 1}));
  EXPECT_EQ(timeline.stalls[1], (Stall{1, Op::backward, 1, 0, milliseconds(30), true, -1}));
  EXPECT_EQ(timeline.makespan, milliseconds(30));
  EXPECT_EQ(timeline.groups[1].busy, milliseconds(17));  // 10 of F0 and 7 of B0
  for (const GroupUsage& usage : timeline.groups) {
    EXPECT_EQ(usage.busy + usage.bubble + usage.wait, timeline.makespan);
    EXPECT_GE(usage.bubble, Nanoseconds(0));
  }
}

// B0 of stage 1 begins at 23, stands still from 25 to 28 and fails at 30: 10 of F0, 2 and 2 of B0.
TEST(Failures, AfterPausesCountTheComputeBetweenThem) {
  const Timeline timeline = run({{1, milliseconds(1), milliseconds(2)},
                                 {1, milliseconds(25), milliseconds(3)},
                                 {1, milliseconds(30), Pause::kForever}});
  EXPECT_EQ(timeline.groups[1].busy, milliseconds(14));
  EXPECT_EQ(timeline.makespan, milliseconds(30));
}

// Stage 1 fails at 5. Stage 0 sends until 20, and its last message arrives 3 later although nobody receives
// it. Messages are in flight from 10 to 13 and from 20 to 23.
TEST(Failures, EndWhenTheLastTransferHasEnded) {
  const Timeline timeline = run({{1, milliseconds(5), Pause::kForever}});
  EXPECT_EQ(timeline.makespan, milliseconds(23));
  for (const GroupUsage& usage : timeline.groups) EXPECT_EQ(usage.transfer, milliseconds(6));
  EXPECT_EQ(timeline.groups[0].busy, milliseconds(20));
  EXPECT_EQ(timeline.groups[1].wait, milliseconds(3));  // for its first message, from 10 to 13
}

// 20 of compute starting at 23: 2 until the pause from 25 to 32, which overlaps the one from 27 to 37, and
// the other 18 until 55. The pause of group 0 does not matter, and the last pause comes too late.
TEST(ComputeRuns, ContinueBetweenPauses) {
  const Conditions conditions{nullptr,
                              {{0, milliseconds(24), milliseconds(9)},
                               {1, milliseconds(25), milliseconds(7)},
                               {1, milliseconds(27), milliseconds(10)},
                               {1, milliseconds(55), milliseconds(1)}}};
  std::vector<ComputePiece> pieces;
  const ComputeRun run = run_compute(conditions, 1, milliseconds(23), milliseconds(20), &pieces);
  EXPECT_EQ(run.end, milliseconds(55));
  EXPECT_EQ(run.computed, milliseconds(20));
  EXPECT_FALSE(run.fails);
  const std::vector<std::int64_t> ends = {25, 32, 37, 55};
  ASSERT_EQ(pieces.size(), ends.size());
  Nanoseconds start = milliseconds(23);
  for (std::size_t k = 0; k < ends.size(); ++k) {
    EXPECT_EQ(pieces[k].start, start);
    EXPECT_EQ(pieces[k].end, milliseconds(ends[k]));
    EXPECT_EQ(pieces[k].paused, k == 1 || k == 2);
    start = pieces[k].end;
  }
}

// From 23 on, with a pause from 25 to 28 and a failure at 30: 2 and 2 of compute.
TEST(ComputeRuns, EndWhenTheGroupFails) {
  const ComputeRun run =
      run_compute({nullptr, {{1, milliseconds(25), milliseconds(3)}, {1, milliseconds(30), Pause::kForever}}},
                  1, milliseconds(23), milliseconds(20));
  EXPECT_TRUE(run.fails);
  EXPECT_EQ(run.end, milliseconds(30));
  EXPECT_EQ(run.computed, milliseconds(4));
}

// A group that fails after its work is done stalls nothing.
TEST(Failures, AfterTheEndGoUnnoticed) {
  EXPECT_TRUE(run({{1, milliseconds(73), Pause::kForever}}).stalls.empty());
  EXPECT_FALSE(run({{1, milliseconds(72), Pause::kForever}}).stalls.empty());
}

TEST(Perturbation, FindsTheGroupOfARank) {
  Program program;
  program.groups = {{0, 2, 0, 0, 0, 0}, {2, 4, 1, 0, 0, 0}, {6, 1, 2, 0, 0, 0}};
  const std::vector<std::int32_t> expected = {0, 0, 1, 1, 1, 1, 2};
  for (std::int32_t rank = 0; rank < 7; ++rank) EXPECT_EQ(group_of_rank(program, rank), expected[rank]);
  std::swap(program.groups[0], program.groups[2]);  // groups need not be in the order of their ranks
  for (std::int32_t rank = 0; rank < 7; ++rank) EXPECT_EQ(group_of_rank(program, rank), 2 - expected[rank]);
}

// Stage 1 is twice as slow: F0 13-33, B0 33-73, F1 73-93, B1 93-133; stage 0's B1 is 136-156.
TEST(Perturbation, SlowsOneGroup) {
  PricedProgram priced = two_stages();
  slow_down(priced.costs, priced.program, 1, 2);
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::usage);
  EXPECT_EQ(timeline.makespan, Nanoseconds(156'000'000));
  EXPECT_EQ(timeline.groups[0].busy, Nanoseconds(60'000'000));
  EXPECT_EQ(timeline.groups[1].busy, Nanoseconds(120'000'000));
}

// At half the bandwidth messages take 6 ms, not 3. In the chain F0, message, F0 B0 F1 B1, message, B1 both
// messages take 3 longer.
TEST(Perturbation, SlowsTheLinksOfOneGroup) {
  PricedProgram priced = two_stages();
  slow_links(priced.costs, priced.program, {1, 0.5});
  EXPECT_EQ(simulate(priced.program, priced.costs, Detail::usage).makespan, Nanoseconds(102'000'000));
}

TEST(Perturbation, FreesCommunication) {
  PricedProgram priced = two_stages();
  free_communication(priced.costs);
  EXPECT_EQ(simulate(priced.program, priced.costs, Detail::usage).makespan, Nanoseconds(90'000'000));
}

// Mean 1 and, for sigma 0.2, standard deviation sqrt(exp(0.04) - 1) = 0.202: with 100,000 draws the estimates
// are within 0.004 (six standard errors of the mean) and 0.005.
TEST(Perturbation, JitterKeepsTheMean) {
  ProgramCosts costs;
  costs.instruction.assign(100'000, Nanoseconds(1'000'000));
  Random random(9);
  add_jitter(costs, 0.2, random);
  double sum = 0;
  double squares = 0;
  for (const Nanoseconds duration : costs.instruction) {
    const double factor = static_cast<double>(duration.count()) / 1e6;
    sum += factor;
    squares += factor * factor;
  }
  const double mean = sum / 1e5;
  EXPECT_NEAR(mean, 1, 0.004);
  EXPECT_NEAR(std::sqrt(squares / 1e5 - mean * mean), std::sqrt(std::exp(0.04) - 1), 0.005);
}

TEST(Perturbation, JitterFollowsItsSeed) {
  const auto drawn = [](std::uint64_t seed) {
    PricedProgram priced = two_stages();
    Random random(seed);
    add_jitter(priced.costs, 0.1, random);
    return priced.costs.instruction;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

}  // namespace conditions_test
}  // namespace dflop::testing
