// Groups that take turns on a few cores.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/program/lowering.hpp"
#include "sim/engine.hpp"
#include "tests/sim/random_program.hpp"
#include "tests/sim/reference.hpp"

namespace dflop::testing {
namespace cores_test {

constexpr Instruction kForward{Op::forward, 0, 0, 0};
constexpr Instruction kNextForward{Op::forward, 0, 1, 0};

Conditions on_cores(int cores) {
  Conditions conditions;
  conditions.cores = cores;
  return conditions;
}

Timeline simulate_on(int cores, const PricedProgram& priced) {
  return simulate(priced.program, priced.costs, Detail::spans, on_cores(cores));
}

const Span& span_at(const Timeline& timeline, std::int32_t rank, std::int32_t position) {
  return *std::find_if(timeline.spans.begin(), timeline.spans.end(),
                       [=](const Span& span) { return span.rank == rank && span.position == position; });
}

// Group 0 runs two forwards of 3 and sends each result, which arrives 1 later. Group 1 takes 5 for each.
//   group 0: 0-3, then 3-6, since nobody waits for the core at 3
//   group 1: gets the first message at 4, asks for the core, waits until 6; 6-11; the second is there, 11-16
// Group 1's time 3-4 is wait, for a message in flight. Its time 4-6, for a core, is bubble, and so is 0-3.
TEST(Cores, AreTakenInTurns) {
  const Instruction send{Op::send, 0, 0, 0};
  const Instruction next_send{Op::send, 0, 1, 1};
  const Instruction receive{Op::receive, 0, 0, 0};
  const Instruction next_receive{Op::receive, 0, 1, 1};
  PricedProgram priced = make_program(
      {{kForward, send, kNextForward, next_send}, {receive, kForward, next_receive, kNextForward}},
      {{0, 1, 0, Bytes{1}, Bytes{1}}, {0, 1, 1, Bytes{1}, Bytes{1}}}, {});
  priced.costs.instruction = {Nanoseconds(3), Nanoseconds(0), Nanoseconds(3), Nanoseconds(0),
                              Nanoseconds(0), Nanoseconds(5), Nanoseconds(0), Nanoseconds(5)};
  priced.costs.message = {Nanoseconds(1), Nanoseconds(1)};
  const Timeline timeline = simulate_on(1, priced);
  EXPECT_EQ(timeline.cores, 1);
  EXPECT_EQ(timeline.makespan, Nanoseconds(16));
  EXPECT_EQ(span_at(timeline, 0, 2).start, Nanoseconds(3));
  EXPECT_EQ(span_at(timeline, 1, 1).start, Nanoseconds(6));
  EXPECT_EQ(span_at(timeline, 1, 3).start, Nanoseconds(11));
  EXPECT_EQ(timeline.groups[1].busy, Nanoseconds(10));
  EXPECT_EQ(timeline.groups[1].wait, Nanoseconds(1));
  EXPECT_EQ(timeline.groups[1].bubble, Nanoseconds(5));
  // Two cores: group 1 works 4-9 and 9-14.
  EXPECT_EQ(simulate_on(2, priced).makespan, Nanoseconds(14));
}

// A tp group of two ranks needs both cores. Group 2 needs only one but does not overtake it.
//   group 0: 0-10; group 1: 10-14; group 2: 14-17
TEST(Cores, OfATpGroupAreTakenTogether) {
  PricedProgram priced = make_program({{kForward}, {kForward}, {kForward}}, {}, {});
  priced.program.groups[1].ranks = 2;
  priced.program.groups[2].first_rank = 3;
  priced.costs.instruction = {Nanoseconds(10), Nanoseconds(4), Nanoseconds(3)};
  const Timeline timeline = simulate_on(2, priced);
  EXPECT_EQ(span_at(timeline, 1, 0).start, Nanoseconds(10));
  EXPECT_EQ(span_at(timeline, 3, 0).start, Nanoseconds(14));
  EXPECT_EQ(timeline.makespan, Nanoseconds(17));
  // With only one core the tp group takes that core, for the same time.
  EXPECT_EQ(simulate_on(1, priced).makespan, Nanoseconds(17));
  // On three cores, groups 0 and 1 begin immediately, and group 2 when group 1 ends, at 4.
  EXPECT_EQ(simulate_on(3, priced).makespan, Nanoseconds(10));
  EXPECT_EQ(span_at(simulate_on(3, priced), 3, 0).start, Nanoseconds(4));
}

// The gradients of the second half of group 0's backward are reduced from the middle of this backward on.
// Group 0 gets its core at 10, after group 1's forward (the lower number went first, ran its own forward of
// 2, and waits again).
//   core: group 0 0-2, group 1 2-10 (asked at 0), group 0 10-18, group 1 18-22
//   entered: by group 0 at 10 + 4, by group 1 at 18 + 2; the collective of 5 lasts from 20 to 25
TEST(Cores, ComputeThatWaitsEntersItsCollectiveLater) {
  const Instruction backward{Op::backward, 0, 0, 0};
  const Instruction start{Op::all_reduce_start, 0, -1, 0};
  const Instruction wait{Op::all_reduce_wait, 0, -1, 0};
  PricedProgram priced = make_program({{kForward, start, backward, wait}, {kForward, start, backward, wait}},
                                      {}, {{.groups = {0, 1}, .bytes = Bytes{1}, .ready = 0.5}});
  priced.costs.instruction = {Nanoseconds(2), Nanoseconds(0), Nanoseconds(8), Nanoseconds(0),
                              Nanoseconds(8), Nanoseconds(0), Nanoseconds(4), Nanoseconds(0)};
  priced.costs.collective = {Nanoseconds(5)};
  const Timeline timeline = simulate_on(1, priced);
  EXPECT_EQ(span_at(timeline, 0, 2).start, Nanoseconds(10));
  EXPECT_EQ(span_at(timeline, 0, 1).start, Nanoseconds(20));
  EXPECT_EQ(timeline.makespan, Nanoseconds(25));
}

// The only core is lost with the rank that fails on it, and the other rank waits for it forever.
TEST(Cores, StayWithARankThatFails) {
  PricedProgram priced = make_program({{kForward}, {kForward}}, {}, {});
  priced.costs.instruction = {Nanoseconds(10), Nanoseconds(4)};
  Conditions conditions = on_cores(1);
  conditions.pauses = {{0, Nanoseconds(6), Pause::kForever}};
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans, conditions);
  ASSERT_EQ(timeline.stalls.size(), 2U);
  EXPECT_TRUE(timeline.stalls[0].failed);
  EXPECT_FALSE(timeline.stalls[1].failed);
  EXPECT_EQ(timeline.stalls[1].op, Op::forward);
  EXPECT_EQ(timeline.stalls[1].since, Nanoseconds(0));
}

class CoresOfRandomPrograms : public ::testing::Test {
 protected:
  void for_each(const std::function<void(const PricedProgram&, int cores)>& check) {
    constexpr int kPrograms = 500;
    Random random(4711);
    for (int k = 0; k < kPrograms; ++k) {
      const PricedProgram priced = make_random_program(random);
      const auto ranks = static_cast<std::uint64_t>(priced.program.ranks());
      const int cores = static_cast<int>(1 + random.below(std::min<std::uint64_t>(ranks + 1, 9)));
      SCOPED_TRACE("program " + std::to_string(k) + " on " + std::to_string(cores) + " cores");
      check(priced, cores);
      if (HasFailure()) return;
    }
  }
};

TEST_F(CoresOfRandomPrograms, RunLikeTheReference) {
  for_each([](const PricedProgram& priced, int cores) {
    const CoresReference reference = make_cores_reference(priced, cores);
    const Timeline timeline = simulate_on(cores, priced);
    EXPECT_EQ(timeline.makespan, reference.makespan);
    std::map<std::int32_t, std::int64_t> begin;
    for (const Group& group : priced.program.groups) begin[group.first_rank] = group.begin;
    for (const Span& span : timeline.spans) {
      const auto i = static_cast<std::size_t>(begin[span.rank] + span.position);
      if (span.stream == Stream::compute) {
        ASSERT_EQ(span.start, reference.start[i]);
      }
      const bool goes_on = is_send(span.op) || span.op == Op::all_reduce_start;
      if (!goes_on) {
        ASSERT_EQ(span.start + span.duration, reference.end[i]);
      }
    }
  });
}

TEST_F(CoresOfRandomPrograms, WithACoreForEachRankAreTheSame) {
  for_each([](const PricedProgram& priced, int) {
    const Timeline expected = simulate(priced.program, priced.costs, Detail::spans);
    EXPECT_EQ(expected.cores, 0);
    for (const int more : {0, 1}) {
      Timeline timeline = simulate_on(priced.program.ranks() + more, priced);
      timeline.cores = 0;
      EXPECT_EQ(timeline, expected);
    }
    EXPECT_EQ(make_cores_reference(priced, priced.program.ranks()).makespan, expected.makespan);
  });
}

/// Groups do no more work in total than the cores can, and never use more cores at once than there are.
TEST_F(CoresOfRandomPrograms, NeverUseMoreCoresThanThereAre) {
  for_each([](const PricedProgram& priced, int cores) {
    const Timeline timeline = simulate_on(cores, priced);
    std::map<std::int32_t, int> need;
    for (const Group& group : priced.program.groups) need[group.first_rank] = std::min(group.ranks, cores);
    std::map<Nanoseconds, int> change;
    Nanoseconds work{0};
    for (const Span& span : timeline.spans) {
      if (span.stream != Stream::compute) continue;
      change[span.start] += need[span.rank];
      change[span.start + span.duration] -= need[span.rank];
      work += span.duration * need[span.rank];
    }
    int in_use = 0;
    for (const auto& [time, by] : change) {
      in_use += by;
      ASSERT_LE(in_use, cores);
    }
    EXPECT_GE(timeline.makespan * cores, work);
  });
}

TEST_F(CoresOfRandomPrograms, RunTheSameTwice) {
  for_each([](const PricedProgram& priced, int cores) {
    const Timeline timeline = simulate_on(cores, priced);
    EXPECT_EQ(simulate_on(cores, priced), timeline);
    const Timeline usage = simulate(priced.program, priced.costs, Detail::usage, on_cores(cores));
    EXPECT_EQ(usage.groups, timeline.groups);
    for (const GroupUsage& group : timeline.groups) {
      EXPECT_EQ(group.busy + group.bubble + group.wait, timeline.makespan);
      EXPECT_GE(group.bubble, Nanoseconds(0));
    }
  });
}

}  // namespace cores_test
}  // namespace dflop::testing
