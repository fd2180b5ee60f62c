// Compares random Programs with the independent reference, and checks properties of every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/program/lowering.hpp"
#include "sim/engine.hpp"
#include "tests/sim/random_program.hpp"
#include "tests/sim/reference.hpp"

namespace dflop::testing {
namespace property_test {

constexpr int kPrograms = 500;

class RandomPrograms : public ::testing::Test {
 protected:
  /// Calls check(priced, timeline with spans) for every program.
  template <typename Check>
  void for_each(const Check& check) {
    Random random(2024);
    for (int k = 0; k < kPrograms; ++k) {
      SCOPED_TRACE("program " + std::to_string(k));
      const PricedProgram priced = make_random_program(random);
      ASSERT_NO_THROW(verify(priced.program));
      check(priced, simulate(priced.program, priced.costs, Detail::spans));
      if (HasFailure()) return;
    }
  }
};

TEST_F(RandomPrograms, EqualTheLongestPaths) {
  for_each([](const PricedProgram& priced, const Timeline& timeline) {
    const Reference reference = make_reference(priced);
    EXPECT_EQ(timeline.makespan, reference.makespan);
    EXPECT_EQ(timeline.groups, reference.groups);
  });
}

// The span of an instruction ends with the instruction; the span of a send or of a background collective ends
// with the transfer.
TEST_F(RandomPrograms, LeaveOneSpanPerInstruction) {
  for_each([](const PricedProgram& priced, const Timeline& timeline) {
    const Reference reference = make_reference(priced);
    ASSERT_EQ(timeline.spans.size(), priced.program.instructions.size());
    std::map<std::pair<std::int32_t, std::int32_t>, Span> of_place;
    for (const Span& span : timeline.spans) of_place[{span.rank, span.position}] = span;
    for (const Group& group : priced.program.groups) {
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const Span& span = of_place.at({group.first_rank, static_cast<std::int32_t>(i - group.begin)});
        const Instruction& instruction = priced.program.instructions[i];
        ASSERT_EQ(span.op, instruction.op);
        ASSERT_EQ(span.stage, instruction.stage);
        ASSERT_EQ(span.microbatch, instruction.microbatch);
        if (span.op == Op::all_reduce_start) {
          ASSERT_EQ(span.start, reference.collective_start[span.message]);
          ASSERT_EQ(span.duration, priced.costs.collective[span.message]);
          continue;
        }
        Nanoseconds end = reference.end[i];
        if (is_send(span.op)) end += priced.costs.message[span.message];
        ASSERT_EQ(span.start + span.duration, end);
      }
    }
  });
}

TEST_F(RandomPrograms, OrderSpansByStartAndOverlapNoneOnComputeAndCollective) {
  for_each([](const PricedProgram&, const Timeline& timeline) {
    std::map<std::pair<std::int32_t, Stream>, Nanoseconds> busy_until;
    Nanoseconds latest{0};
    for (const Span& span : timeline.spans) {
      EXPECT_GE(span.start, latest);
      latest = span.start;
      EXPECT_GE(span.duration, Nanoseconds(0));
      EXPECT_LE(span.start + span.duration, timeline.makespan);
      if (span.stream == Stream::send || span.stream == Stream::receive) continue;
      Nanoseconds& until = busy_until[{span.rank, span.stream}];
      EXPECT_GE(span.start, until);
      until = span.start + span.duration;
    }
  });
}

TEST_F(RandomPrograms, DivideTheMakespanIntoBusyBubbleAndWait) {
  for_each([](const PricedProgram&, const Timeline& timeline) {
    for (const GroupUsage& usage : timeline.groups) {
      EXPECT_EQ(usage.busy + usage.bubble + usage.wait, timeline.makespan);
      EXPECT_GE(usage.bubble, Nanoseconds(0));
      EXPECT_GE(usage.wait, Nanoseconds(0));
      EXPECT_LE(usage.wait, usage.transfer);
      EXPECT_LE(usage.transfer, timeline.makespan);
      EXPECT_LE(usage.busy, timeline.makespan);
    }
  });
}

// Memory over time begins and ends at the model state and reaches the recorded peak.
TEST_F(RandomPrograms, ReturnTheirMemory) {
  for_each([](const PricedProgram&, const Timeline& timeline) {
    for (const GroupUsage& usage : timeline.groups) {
      std::vector<MemoryPoint> points;
      std::copy_if(timeline.memory.begin(), timeline.memory.end(), std::back_inserter(points),
                   [&](const MemoryPoint& point) { return point.rank == usage.first_rank; });
      ASSERT_FALSE(points.empty());
      EXPECT_EQ(points.front().time, Nanoseconds(0));
      const auto beside_state = [](const MemoryPoint& point) { return point.activations + point.buffers; };
      EXPECT_EQ(beside_state(points.front()), Bytes{});
      EXPECT_EQ(beside_state(points.back()), Bytes{});
      const auto peak = std::max_element(points.begin(), points.end(), [&](const auto& a, const auto& b) {
        return beside_state(a) < beside_state(b);
      });
      EXPECT_EQ(usage.model_state.total() + beside_state(*peak), usage.peak_memory);
      EXPECT_EQ(peak->time, usage.peak_time);
      EXPECT_EQ(peak->activations, usage.peak_activations);
      EXPECT_EQ(peak->buffers, usage.peak_buffers);
      EXPECT_TRUE(std::is_sorted(points.begin(), points.end(),
                                 [](const MemoryPoint& a, const MemoryPoint& b) { return a.time < b.time; }));
    }
  });
}

TEST_F(RandomPrograms, TakeTwiceAsLongAtTwiceTheCosts) {
  for_each([](const PricedProgram& priced, const Timeline& timeline) {
    ProgramCosts doubled = priced.costs;
    for (auto* table : {&doubled.instruction, &doubled.message, &doubled.collective}) {
      for (Nanoseconds& duration : *table) duration *= 2;
    }
    const Timeline slower = simulate(priced.program, doubled, Detail::usage);
    EXPECT_EQ(slower.makespan, 2 * timeline.makespan);
    for (std::size_t g = 0; g < timeline.groups.size(); ++g) {
      EXPECT_EQ(slower.groups[g].busy, 2 * timeline.groups[g].busy);
      EXPECT_EQ(slower.groups[g].bubble, 2 * timeline.groups[g].bubble);
      EXPECT_EQ(slower.groups[g].wait, 2 * timeline.groups[g].wait);
      EXPECT_EQ(slower.groups[g].transfer, 2 * timeline.groups[g].transfer);
      EXPECT_EQ(slower.groups[g].peak_memory, timeline.groups[g].peak_memory);
    }
  });
}

TEST_F(RandomPrograms, GiveTheSameTimelineAgainAndTheSameUsageWithoutSpans) {
  for_each([](const PricedProgram& priced, const Timeline& timeline) {
    EXPECT_EQ(simulate(priced.program, priced.costs, Detail::spans), timeline);
    const Timeline usage = simulate(priced.program, priced.costs, Detail::usage);
    EXPECT_EQ(usage.makespan, timeline.makespan);
    EXPECT_EQ(usage.groups, timeline.groups);
    EXPECT_TRUE(usage.spans.empty());
    EXPECT_TRUE(usage.memory.empty());
  });
}

// A slower instruction never makes the iteration end earlier.
TEST_F(RandomPrograms, NeverEndEarlierWithASlowerInstruction) {
  Random random(7);
  for_each([&](const PricedProgram& priced, const Timeline& timeline) {
    ProgramCosts slower = priced.costs;
    const std::size_t i = random.below(slower.instruction.size());
    const Op op = priced.program.instructions[i].op;
    if (is_compute(op) || op == Op::optimizer_step) slower.instruction[i] += Nanoseconds(500);
    EXPECT_GE(simulate(priced.program, slower, Detail::usage).makespan, timeline.makespan);
  });
}

}  // namespace property_test
}  // namespace dflop::testing
