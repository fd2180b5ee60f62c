// The timeline of a live run is consistent with the program and with itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "costmodel/recorded/recorded.hpp"
#include "tests/backend/run/live_random.hpp"
#include "traces/files/timeline.hpp"

namespace dflop {
namespace timeline_test {

using testing::LiveRun;
using testing::RandomCase;

struct Recording {
  Program program;
  Timeline timeline;
};

/// Returns one run each of random plans of all layouts, with and without gradient buckets.
const std::vector<Recording>& recordings() {
  static const std::vector<Recording> all = [] {
    std::vector<Recording> made;
    Random random(77);
    const std::pair<OrderKind, Layout> families[] = {{OrderKind::one_f_one_b, Layout::uniform},
                                                     {OrderKind::one_f_one_b, Layout::disaggregated},
                                                     {OrderKind::zb_v, Layout::disaggregated},
                                                     {OrderKind::interleaved, Layout::uniform},
                                                     {OrderKind::encoder_in_bubbles, Layout::colocated}};
    for (const auto& [schedule, layout] : families) {
      for (int i = 0; i < 6; ++i) {
        const RandomCase c = testing::random_case(random, schedule, layout);
        LiveRun run(c.plan, testing::deep_live_model(), c.samples, c.assignment, c.order, DType::f32);
        made.push_back({run.program, run.step(true).timeline});
      }
    }
    return made;
  }();
  return all;
}

Nanoseconds end_of(const Span& span) {
  return span.start + span.duration;
}

std::vector<Span> spans_of(const Timeline& timeline, std::int32_t rank, Stream stream) {
  std::vector<Span> spans;
  std::copy_if(timeline.spans.begin(), timeline.spans.end(), std::back_inserter(spans),
               [&](const Span& s) { return s.rank == rank && s.stream == stream; });
  return spans;
}

TEST(LiveTimeline, AnInstructionTakesLongerByItsDelay) {
  LiveRun run(testing::uniform_plan(1, 2, 1, 2), testing::live_samples(4, 5), DType::f32);
  std::vector<Nanoseconds> delays(run.program.instructions.size(), Nanoseconds(0));
  const Nanoseconds longer = std::chrono::milliseconds(30);
  const auto slow = static_cast<std::size_t>(run.program.groups[1].begin) + 1;  // of the second rank
  ASSERT_EQ(run.program.instructions[slow].op, Op::forward);
  delays[slow] = longer;
  StepOptions options;
  options.delays = delays;
  const Timeline timeline = run.executor->step(run.iteration(), options).timeline;
  int as_long = 0;
  for (const Span& span : timeline.spans) {
    if (span.rank == 1 && span.op == Op::forward && span.duration >= longer) ++as_long;
  }
  EXPECT_GE(as_long, 1);
  EXPECT_GE(timeline.makespan, longer);

  delays.pop_back();
  options.delays = delays;
  EXPECT_THROW(run.executor->step(run.iteration(), options), Error);
}

TEST(LiveTimeline, HasASpanOfEveryInstructionInItsOrder) {
  for (const auto& [program, timeline] : recordings()) {
    ASSERT_EQ(timeline.spans.size(), program.instructions.size());
    std::size_t next = 0;
    for (const Group& group : program.groups) {
      for (std::int64_t i = group.begin; i < group.end; ++i) {
        const Span& span = timeline.spans[next++];
        const Instruction& instruction = program.instructions[static_cast<std::size_t>(i)];
        EXPECT_EQ(span.rank, group.first_rank);
        EXPECT_EQ(span.position, i - group.begin);
        EXPECT_EQ(span.op, instruction.op);
        EXPECT_EQ(span.stage, instruction.stage);
        EXPECT_EQ(span.microbatch, instruction.microbatch);
      }
    }
  }
}

TEST(LiveTimeline, LiesInItsMakespan) {
  for (const auto& [program, timeline] : recordings()) {
    Nanoseconds first = timeline.makespan;
    Nanoseconds last{0};
    for (const Span& span : timeline.spans) {
      EXPECT_GE(span.start.count(), 0);
      EXPECT_GE(span.duration.count(), 0);
      first = std::min(first, span.start);
      last = std::max(last, end_of(span));
    }
    EXPECT_EQ(first.count(), 0);
    EXPECT_EQ(last, timeline.makespan);
  }
}

TEST(LiveTimeline, RunsOneSpanAtATimeOnAStream) {
  for (const auto& [program, timeline] : recordings()) {
    for (const Group& group : program.groups) {
      for (const Stream stream : {Stream::compute, Stream::collective}) {
        const std::vector<Span> spans = spans_of(timeline, group.first_rank, stream);
        for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_LE(end_of(spans[i - 1]), spans[i].start);
      }
    }
  }
}

TEST(LiveTimeline, SpendsTheMakespanExactly) {
  for (const auto& [program, timeline] : recordings()) {
    for (const GroupUsage& usage : timeline.groups) {
      EXPECT_EQ((usage.busy + usage.bubble + usage.wait).count(), timeline.makespan.count());
      for (const Nanoseconds part : {usage.busy, usage.bubble, usage.wait}) EXPECT_GE(part.count(), 0);
      EXPECT_GE(usage.transfer, usage.wait);  // waiting is part of transfer time
      EXPECT_LE(usage.transfer, timeline.makespan);
      Nanoseconds computed{0};
      for (const Span& span : spans_of(timeline, usage.first_rank, Stream::compute))
        computed += span.duration;
      EXPECT_EQ(usage.busy, computed);
    }
  }
}

TEST(LiveTimeline, ReceivesWhatWasSent) {
  for (const auto& [program, timeline] : recordings()) {
    std::map<std::int32_t, const Span*> sends;
    for (const Span& span : timeline.spans) {
      if (is_send(span.op)) sends[span.message] = &span;
    }
    EXPECT_EQ(sends.size(), program.messages.size());
    for (const Span& span : timeline.spans) {
      if (!is_receive(span.op)) continue;
      const Span& sent = *sends.at(span.message);
      EXPECT_LE(sent.start, end_of(span));
      EXPECT_LE(end_of(sent), end_of(span));
      EXPECT_EQ(sent.bytes, span.bytes);
    }
  }
}

/// All spans of a collective start when its last rank arrives, and not before that rank's own span. If a
/// collective was entered ahead, a rank's span starts when it waits for it, and no span ends before the first
/// rank waits, as waiting ranks do the work.
TEST(LiveTimeline, CollectivesBeginTogether) {
  std::size_t collectives = 0;
  for (const auto& [program, timeline] : recordings()) {
    std::map<std::int32_t, std::vector<const Span*>> entered;
    for (const Span& span : timeline.spans) {
      if (enters_collective(span.op)) entered[span.message].push_back(&span);
    }
    EXPECT_EQ(entered.size(), program.collectives.size());
    collectives += entered.size();
    for (const auto& [collective, spans] : entered) {
      EXPECT_EQ(spans.size(), program.collectives[static_cast<std::size_t>(collective)].groups.size());
      Nanoseconds first = spans.front()->start;
      for (const Span* span : spans) first = std::min(first, span->start);
      for (const Span* span : spans) {
        if (span->op == Op::all_reduce) {
          EXPECT_EQ(span->start, first);
        }
        EXPECT_GE(end_of(*span), first);
      }
    }
  }
  EXPECT_GT(collectives, 0U);
}

TEST(LiveTimeline, MemoryIsAllocatedAndFreed) {
  for (const auto& [program, timeline] : recordings()) {
    for (const GroupUsage& usage : timeline.groups) {
      std::vector<MemoryPoint> points;
      std::copy_if(timeline.memory.begin(), timeline.memory.end(), std::back_inserter(points),
                   [&](const MemoryPoint& p) { return p.rank == usage.first_rank; });
      ASSERT_FALSE(points.empty());
      Bytes most;
      bool at_peak = false;
      for (std::size_t i = 0; i < points.size(); ++i) {
        EXPECT_GE(points[i].activations.count, 0);
        EXPECT_GE(points[i].buffers.count, 0);
        if (i > 0) {
          EXPECT_LE(points[i - 1].time, points[i].time);
        }
        most = std::max(most, points[i].activations + points[i].buffers);
        at_peak = at_peak ||
                  (points[i].time == usage.peak_time && points[i].activations == usage.peak_activations &&
                   points[i].buffers == usage.peak_buffers);
      }
      EXPECT_EQ(points.back().activations, points.front().activations);  // forwards' activations are freed
      EXPECT_GT(usage.model_state.total().count, 0);
      EXPECT_EQ(usage.peak_memory, usage.model_state.total() + most);
      EXPECT_TRUE(at_peak);
    }
  }
}

TEST(LiveTimeline, ReadsBackFromItsFile) {
  for (const auto& [program, timeline] : recordings()) {
    EXPECT_EQ(parse_timeline(to_json(timeline), "timeline"), timeline);
  }
}

/// The program rebuilt from the timeline, which recorded_program() verifies, equals the program that was run.
TEST(LiveTimeline, MatchesTheProgramThatRan) {
  for (const auto& [program, timeline] : recordings()) {
    const RecordedProgram recorded = recorded_program(timeline);
    EXPECT_EQ(recorded.program.instructions, program.instructions);
    EXPECT_EQ(recorded.program.stages, program.stages);
    EXPECT_EQ(recorded.program.works, program.works);
    for (const Nanoseconds cost : recorded.costs.message) EXPECT_GE(cost.count(), 0);
    for (const Nanoseconds cost : recorded.costs.collective) EXPECT_GE(cost.count(), 0);
  }
}

/// After each step, a rank holds as much memory as after the first step, whatever the batch.
TEST(LiveMemory, StaysTheSameOverSteps) {
  const auto plans = {testing::uniform_plan(2, 2, 1, 3),
                      testing::disaggregated_plan({1, 1, 2, {}}, {1, 2, 1, {}}, 3)};
  for (const Plan& plan : plans) {
    LiveRun run(plan, testing::live_samples(6, 1), DType::f32);
    run.step(true);
    std::vector<Bytes> first;
    for (int r = 0; r < run.world->ranks(); ++r) first.push_back(run.executor->in_use(r));
    Random random(3);
    for (int step = 2; step <= 50; ++step) {
      run.samples = testing::random_live_samples(random, 3 + static_cast<int>(random.below(9)));
      run.assignment = testing::random_assignment(random, run.plan, run.samples.size());
      run.plan.gbs = static_cast<int>(run.samples.size());
      run.program = lower(run.plan, run.model, run.samples, run.assignment);
      run.step(true, step);
      for (int r = 0; r < run.world->ranks(); ++r) {
        ASSERT_EQ(run.executor->in_use(r), first[static_cast<std::size_t>(r)])
            << "step " << step << ", rank " << r;
      }
    }
  }
}

}  // namespace timeline_test
}  // namespace dflop
