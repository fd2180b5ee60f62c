// Critical paths of small runs, worked out by hand.
#include "sim/analysis/critical_path.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "sim/engine.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace critical_path_test {

constexpr Instruction kForward{Op::forward, 0, 0, 0};
constexpr Instruction kBackward{Op::backward, 0, 0, 0};
constexpr Instruction kStep{Op::optimizer_step, 0, -1, -1};

struct Expected {
  PathLinkKind kind;
  Op op;
  int from, to;  ///< groups; each is a stage
  int microbatch, start, duration;
};

constexpr auto kCompute = PathLinkKind::compute;

void expect_path(const PricedProgram& priced, const std::vector<Expected>& expected,
                 Nanoseconds unit = Nanoseconds(1), const Conditions& conditions = {}) {
  verify(priced.program);
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans, conditions);
  const std::vector<PathLink> path = critical_path(priced.program, priced.costs, timeline, conditions);
  ASSERT_EQ(path.size(), expected.size());
  for (std::size_t k = 0; k < path.size(); ++k) {
    const Expected& e = expected[k];
    const auto stage = [](int group) { return static_cast<std::uint16_t>(group); };
    const PathLink link{e.kind, e.op,         stage(e.from),  stage(e.to),      e.from,
                        e.to,   e.microbatch, e.start * unit, e.duration * unit};
    EXPECT_EQ(path[k], link) << "link " << k << ": " << to_string(path[k].kind) << " "
                             << to_string(path[k].op) << " of group " << path[k].group << " to "
                             << path[k].to_group << " at " << path[k].start.count() << " for "
                             << path[k].duration.count();
  }
}

// Two stages, two microbatches, 1F1B, forward 10 ms, backward 20 ms, messages 3 ms:
//   stage 0: F0 0-10, F1 10-20, idle, B0 46-66, idle, B1 76-96
//   stage 1: idle, F0 13-23, B0 23-43, F1 43-53, B1 53-73
// B1 of stage 0 waits for stage 1, which has been busy since its F0, which waited for F0 of stage 0. The
// second activation arrives before stage 1 needs it, so F1 follows B0.
TEST(CriticalPath, GoesOverMessagesToTheirSends) {
  Pipeline pipeline;
  pipeline.stages = 2;
  pipeline.microbatches = 2;
  pipeline.message = std::chrono::milliseconds(3);
  expect_path(make_pipeline(pipeline),
              {{kCompute, Op::forward, 0, 0, 0, 0, 10},
               {PathLinkKind::message, Op::send, 0, 1, 0, 10, 3},
               {kCompute, Op::forward, 1, 1, 0, 13, 10},
               {kCompute, Op::backward, 1, 1, 0, 23, 20},
               {kCompute, Op::forward, 1, 1, 1, 43, 10},
               {kCompute, Op::backward, 1, 1, 1, 53, 20},
               {PathLinkKind::message, Op::send, 1, 0, 1, 73, 3},
               {kCompute, Op::backward, 0, 0, 1, 76, 20}},
              std::chrono::milliseconds(1));
}

// Group 0 works 5 + 10, group 1 works 30 + 10. The collective takes 7 from 40 on, followed by steps of 4 and
// 2. The run ends with group 0's step at 51, which waited for the collective, and group 1 entered that last.
TEST(CriticalPath, GoesFromACollectiveToItsLastGroup) {
  constexpr Instruction kReduce{Op::all_reduce, 0, -1, 0};
  PricedProgram priced =
      make_program({{kForward, kBackward, kReduce, kStep}, {kForward, kBackward, kReduce, kStep}}, {},
                   {{{0, 1}, Bytes{64}}});
  priced.costs.instruction = {Nanoseconds(5),  Nanoseconds(10), Nanoseconds(0), Nanoseconds(4),
                              Nanoseconds(30), Nanoseconds(10), Nanoseconds(0), Nanoseconds(2)};
  priced.costs.collective = {Nanoseconds(7)};
  expect_path(priced, {{kCompute, Op::forward, 1, 1, 0, 0, 30},
                       {kCompute, Op::backward, 1, 1, 0, 30, 10},
                       {PathLinkKind::collective, Op::all_reduce, 1, 0, -1, 40, 7},
                       {kCompute, Op::optimizer_step, 0, 0, -1, 47, 4}});
}

constexpr Instruction start(int collective) {
  return {Op::all_reduce_start, 0, -1, collective};
}
constexpr Instruction wait(int collective) {
  return {Op::all_reduce_wait, 0, -1, collective};
}

// A bucket is ready after half of the backward. Group 0: forward 0-10, backward 10-30, enters at 20. Group 1:
// forward 0-10, backward 10-50, enters at 30. The collective of 25 lasts 30-55, and both wait for its end.
TEST(CriticalPath, EntersABackgroundCollectiveInsideTheComputeThatMakesItReady) {
  PricedProgram priced =
      make_program({{kForward, start(0), kBackward, wait(0)}, {kForward, start(0), kBackward, wait(0)}}, {},
                   {{.groups = {0, 1}, .bytes = Bytes{64}, .ready = 0.5}});
  priced.costs.instruction = {Nanoseconds(10), Nanoseconds(0), Nanoseconds(20), Nanoseconds(0),
                              Nanoseconds(10), Nanoseconds(0), Nanoseconds(40), Nanoseconds(0)};
  priced.costs.collective = {Nanoseconds(25)};
  expect_path(priced, {{kCompute, Op::forward, 1, 1, 0, 0, 10},
                       {kCompute, Op::backward, 1, 1, 0, 10, 20},
                       {PathLinkKind::collective, Op::all_reduce, 1, 0, -1, 30, 25}});
}

// Both collectives are entered at 3 and run one after the other, 3-13 and 13-18, beyond the backward, 3-4.
TEST(CriticalPath, GoesOverCollectivesThatWaitedForEachOther) {
  const std::vector<Instruction> list = {kForward, start(0), start(1), kBackward, wait(0), wait(1)};
  PricedProgram priced = make_program({list, list}, {}, {{{0, 1}, Bytes{64}}, {{0, 1}, Bytes{64}}});
  for (const std::size_t group : {0, 6}) {
    priced.costs.instruction[group] = Nanoseconds(3);
    priced.costs.instruction[group + 3] = Nanoseconds(1);
  }
  priced.costs.collective = {Nanoseconds(10), Nanoseconds(5)};
  expect_path(priced, {{kCompute, Op::forward, 0, 0, 0, 0, 3},
                       {PathLinkKind::collective, Op::all_reduce, 0, 0, -1, 3, 10},
                       {PathLinkKind::collective, Op::all_reduce, 0, 0, -1, 13, 5}});
}

// As above, but in a recording the second collective is in a queue of its own and waits for the first.
TEST(CriticalPath, GoesOverCollectivesThatWaitedForOnesOfAnotherQueue) {
  const std::vector<Instruction> list = {kForward, start(0), start(1), kBackward, wait(0), wait(1)};
  const Collective second{.groups = {0, 1}, .bytes = Bytes{64}, .queue = 1, .after = {0}};
  PricedProgram priced = make_program({list, list}, {}, {{{0, 1}, Bytes{64}}, second});
  for (const std::size_t group : {0, 6}) {
    priced.costs.instruction[group] = Nanoseconds(3);
    priced.costs.instruction[group + 3] = Nanoseconds(1);
  }
  priced.costs.collective = {Nanoseconds(10), Nanoseconds(5)};
  expect_path(priced, {{kCompute, Op::forward, 0, 0, 0, 0, 3},
                       {PathLinkKind::collective, Op::all_reduce, 0, 0, -1, 3, 10},
                       {PathLinkKind::collective, Op::all_reduce, 0, 0, -1, 13, 5}});
}

// Group 0 sends at 4 and the message takes 6. Group 1 is busy until 10, exactly when the message arrives:
// nobody waits, and the path stays in group 1.
TEST(CriticalPath, StaysInItsGroupIfAMessageIsJustInTime) {
  PricedProgram priced = make_program(
      {{kForward, {Op::send, 0, 0, 0}, kBackward}, {kForward, {Op::receive, 0, 0, 0}, kBackward}},
      {{0, 1, 0, Bytes{1}, Bytes{1}}}, {});
  priced.costs.instruction = {Nanoseconds(4),  Nanoseconds(0), Nanoseconds(1),
                              Nanoseconds(10), Nanoseconds(0), Nanoseconds(2)};
  priced.costs.message = {Nanoseconds(6)};
  expect_path(priced, {{kCompute, Op::forward, 1, 1, 0, 0, 10}, {kCompute, Op::backward, 1, 1, 0, 10, 2}});
}

// The forward takes 10 and is paused from 4 to 11. The backward takes 5 from 17 on; the pause at 22 is too
// late.
TEST(CriticalPath, TellsPausesFromCompute) {
  PricedProgram priced = make_program({{kForward, kBackward}}, {}, {});
  priced.costs.instruction = {Nanoseconds(10), Nanoseconds(5)};
  Conditions conditions;
  conditions.pauses = {{0, Nanoseconds(4), Nanoseconds(7)}, {0, Nanoseconds(22), Nanoseconds(100)}};
  expect_path(priced,
              {{kCompute, Op::forward, 0, 0, 0, 0, 4},
               {PathLinkKind::pause, Op::forward, 0, 0, 0, 4, 7},
               {kCompute, Op::forward, 0, 0, 0, 11, 6},
               {kCompute, Op::backward, 0, 0, 0, 17, 5}},
              Nanoseconds(1), conditions);
}

// The second pause lasts 4 ns longer than the first, the third lies inside it, and the last has no duration.
TEST(CriticalPath, CountsPausesThatOverlapOnce) {
  PricedProgram priced = make_program({{kForward, kBackward}}, {}, {});
  priced.costs.instruction = {Nanoseconds(10), Nanoseconds(5)};
  Conditions conditions;
  conditions.pauses = {{0, Nanoseconds(4), Nanoseconds(7)},
                       {0, Nanoseconds(6), Nanoseconds(9)},
                       {0, Nanoseconds(7), Nanoseconds(2)},
                       {0, Nanoseconds(18), Nanoseconds(0)}};
  expect_path(priced,
              {{kCompute, Op::forward, 0, 0, 0, 0, 4},
               {PathLinkKind::pause, Op::forward, 0, 0, 0, 4, 7},
               {PathLinkKind::pause, Op::forward, 0, 0, 0, 11, 4},
               {kCompute, Op::forward, 0, 0, 0, 15, 6},
               {kCompute, Op::backward, 0, 0, 0, 21, 5}},
              Nanoseconds(1), conditions);
}

// Two messages of 1000 bytes share a link of 10^9 bytes/s from 5 on. Both arrive at 5 + 2000 ns.
TEST(CriticalPath, TakesMessagesAsLongAsTheNetworkDoes) {
  const Instruction receive{Op::receive, 0, 0, 0};
  PricedProgram priced =
      make_program({{kForward, {Op::send, 0, 0, 0}, {Op::send, 0, 0, 1}, kBackward},
                    {receive, kForward, kBackward},
                    {{Op::receive, 0, 0, 1}, kForward, kBackward}},
                   {{0, 1, 0, Bytes{1000}, Bytes{1000}}, {0, 2, 0, Bytes{1000}, Bytes{1000}}}, {});
  priced.costs.instruction[0] = Nanoseconds(5);
  priced.costs.instruction[5] = Nanoseconds(3);
  const Network network = shared_link(priced.program, Nanoseconds(0), 1e9, 1e9);
  Conditions conditions;
  conditions.network = &network;
  expect_path(priced,
              {{kCompute, Op::forward, 0, 0, 0, 0, 5},
               {PathLinkKind::message, Op::send, 0, 1, 0, 5, 2000},
               {kCompute, Op::forward, 1, 1, 0, 2005, 3},
               {kCompute, Op::backward, 1, 1, 0, 2008, 0}},
              Nanoseconds(1), conditions);
}

TEST(CriticalPath, OfNothingIsEmpty) {
  const PricedProgram none;
  EXPECT_TRUE(
      critical_path(none.program, none.costs, simulate(none.program, none.costs, Detail::spans)).empty());
}

TEST(CriticalPath, SumsByStageAndOperation) {
  const auto link = [](PathLinkKind kind, Op op, std::uint16_t stage, int duration) {
    return PathLink{kind, op, stage, stage, stage, stage, 0, Nanoseconds(0), Nanoseconds(duration)};
  };
  const std::vector<PathLink> path = {link(kCompute, Op::forward, 1, 5),
                                      link(PathLinkKind::message, Op::send, 0, 2),
                                      link(kCompute, Op::forward, 1, 6), link(kCompute, Op::forward, 0, 1)};
  const std::vector<PathShare> expected = {{0, kCompute, Op::forward, 1, Nanoseconds(1)},
                                           {0, PathLinkKind::message, Op::send, 1, Nanoseconds(2)},
                                           {1, kCompute, Op::forward, 2, Nanoseconds(11)}};
  EXPECT_EQ(path_shares(path), expected);
}

TEST(CriticalPath, RejectsATimelineOfAnotherRun) {
  Pipeline pipeline;
  pipeline.stages = 2;
  const PricedProgram priced = make_pipeline(pipeline);
  const auto refuses = [&](const ProgramCosts& costs, const Timeline& timeline) {
    EXPECT_THROW(critical_path(priced.program, costs, timeline), Error);
  };
  refuses(priced.costs, simulate(priced.program, priced.costs, Detail::usage));
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
  ProgramCosts others = priced.costs;
  for (Nanoseconds& duration : others.instruction) duration *= 2;
  refuses(others, timeline);
  Timeline longer = timeline;
  longer.makespan += Nanoseconds(1);
  refuses(priced.costs, longer);
  Conditions conditions;
  conditions.pauses = {{0, Nanoseconds(0), Pause::kForever}};
  refuses(priced.costs, simulate(priced.program, priced.costs, Detail::spans, conditions));
}

}  // namespace critical_path_test
}  // namespace dflop::testing
