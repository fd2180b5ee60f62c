// Pipelines whose makespan, usage and memory follow from closed forms or a few lines of arithmetic.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/program/lowering.hpp"
#include "sim/engine.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace pipeline_test {

using std::chrono::milliseconds;

Timeline run(const Pipeline& pipeline, Detail detail = Detail::usage) {
  const PricedProgram priced = make_pipeline(pipeline);
  verify(priced.program);
  return simulate(priced.program, priced.costs, detail);
}

class EqualStages : public ::testing::TestWithParam<OrderKind> {};

// The last stage begins after (p - 1) tf, works m (tf + tb) without a pause, and its last gradient takes (p -
// 1) tb to reach stage 0: (m + p - 1)(tf + tb). All idle time of a stage, (p - 1)(tf + tb), is bubble.
TEST_P(EqualStages, WithoutCommunicationMeetTheClosedForm) {
  for (const int p : {1, 2, 3, 5, 8, 16}) {
    for (const int m : {1, 2, 3, 4, 7, 16, 61}) {
      Pipeline pipeline;
      pipeline.stages = p;
      pipeline.microbatches = m;
      pipeline.order = GetParam();
      pipeline.forward = Nanoseconds(1'000'003);
      pipeline.backward = Nanoseconds(2'000'029);
      const Timeline timeline = run(pipeline);
      const Nanoseconds both = pipeline.forward + pipeline.backward;
      EXPECT_EQ(timeline.makespan, (m + p - 1) * both) << p << " stages, " << m << " microbatches";
      for (const GroupUsage& usage : timeline.groups) {
        EXPECT_EQ(usage.busy, m * both);
        EXPECT_EQ(usage.bubble, (p - 1) * both);
        EXPECT_EQ(usage.wait, Nanoseconds(0));
        EXPECT_EQ(usage.transfer, Nanoseconds(0));
      }
      EXPECT_DOUBLE_EQ(idle_fraction(timeline), (p - 1.0) / (m + p - 1.0));
    }
  }
}

// A microbatch keeps its activations from its forward to its backward. GPipe runs all m forwards first. 1F1B
// on stage s has p - s - 1 warm-up forwards and then one more before each backward: min(m, p - s).
TEST_P(EqualStages, HoldTheActivationsOfTheirSchedule) {
  const int p = 6;
  for (const int m : {1, 3, 6, 20}) {
    Pipeline pipeline;
    pipeline.stages = p;
    pipeline.microbatches = m;
    pipeline.order = GetParam();
    const Timeline timeline = run(pipeline);
    for (int s = 0; s < p; ++s) {
      const int held = GetParam() == OrderKind::gpipe ? m : std::min(m, p - s);
      // 1,000 bytes of model state, 100 per microbatch, 10 of workspace.
      EXPECT_EQ(timeline.groups[s].peak_memory, (Bytes{1'000 + 100 * held + 10}))
          << "stage " << s << " of " << m;
      EXPECT_EQ(timeline.groups[s].model_state.total(), Bytes{1'000});
    }
    EXPECT_EQ(peak_memory(timeline), timeline.groups[0].peak_memory);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, EqualStages, ::testing::Values(OrderKind::one_f_one_b, OrderKind::gpipe));

// 1 MB at 1 GB/s + 1 us = 1.001 ms per message. SimGrid 3.32, ATLAHS and ASTRA-sim agree on both makespans.
TEST(PipelineWithCommunication, MeetsTheMakespansOfOtherSimulators) {
  Pipeline pipeline;
  pipeline.message = Nanoseconds(1'001'000);
  pipeline.stages = 16;
  pipeline.microbatches = 512;
  EXPECT_EQ(run(pipeline).makespan, Nanoseconds(16'798'988'000));
  pipeline.stages = 64;
  pipeline.microbatches = 4096;
  EXPECT_EQ(run(pipeline).makespan, Nanoseconds(132'966'188'000));
}

/// Two stages, two microbatches, 1F1B, forward 10 ms, backward 20 ms, messages 3 ms:
///   stage 0: F0 0-10, F1 10-20, idle, B0 46-66, idle, B1 76-96
///   stage 1: idle, F0 13-23, B0 23-43, F1 43-53, B1 53-73
///   in flight: activations 10-13 and 20-23, gradients 43-46 and 73-76
Pipeline small() {
  Pipeline pipeline;
  pipeline.stages = 2;
  pipeline.microbatches = 2;
  pipeline.message = milliseconds(3);
  return pipeline;
}

TEST(PipelineWithCommunication, SeparatesBusyBubbleWaitAndTransfer) {
  const Timeline timeline = run(small());
  EXPECT_EQ(timeline.makespan, milliseconds(96));
  const GroupUsage& first = timeline.groups[0];
  EXPECT_EQ(first.busy, milliseconds(60));    // 2 x (10 + 20)
  EXPECT_EQ(first.wait, milliseconds(6));     // idle 20-46 and 66-76, of which 43-46 and 73-76 in flight
  EXPECT_EQ(first.bubble, milliseconds(30));  // the rest: 23 + 7
  EXPECT_EQ(first.transfer, milliseconds(12));
  const GroupUsage& last = timeline.groups[1];
  EXPECT_EQ(last.busy, milliseconds(60));
  EXPECT_EQ(last.wait, milliseconds(3));     // idle 0-13, of which 10-13 in flight; activation 2 is early
  EXPECT_EQ(last.bubble, milliseconds(33));  // 10 before, 96 - 73 = 23 after its last backward
  EXPECT_EQ(last.transfer, milliseconds(12));
}

TEST(PipelineWithCommunication, LeavesOneSpanPerInstruction) {
  const Timeline timeline = run(small(), Detail::spans);
  struct Expected {
    Stream stream;
    Op op;
    int microbatch, start_ms, duration_ms;
  };
  const auto expect = [&](std::int32_t rank, const std::vector<Expected>& expected) {
    std::vector<Span> spans;
    std::copy_if(timeline.spans.begin(), timeline.spans.end(), std::back_inserter(spans),
                 [&](const Span& span) { return span.rank == rank; });
    ASSERT_EQ(spans.size(), expected.size());
    for (std::size_t k = 0; k < spans.size(); ++k) {
      EXPECT_EQ(spans[k].stream, expected[k].stream) << k;
      EXPECT_EQ(spans[k].op, expected[k].op) << k;
      EXPECT_EQ(spans[k].microbatch, expected[k].microbatch) << k;
      EXPECT_EQ(spans[k].start, milliseconds(expected[k].start_ms)) << k;
      EXPECT_EQ(spans[k].duration, milliseconds(expected[k].duration_ms)) << k;
      EXPECT_EQ(spans[k].stage, rank);
      const bool moves = spans[k].stream != Stream::compute;
      EXPECT_EQ(spans[k].bytes, (Bytes{moves ? 1'000'000 : 0}));
      EXPECT_EQ(spans[k].message >= 0, moves);
    }
  };
  expect(0, {{Stream::compute, Op::forward, 0, 0, 10},
             {Stream::send, Op::send, 0, 10, 3},
             {Stream::compute, Op::forward, 1, 10, 10},
             {Stream::send, Op::send, 1, 20, 3},
             {Stream::receive, Op::receive, 0, 20, 26},
             {Stream::compute, Op::backward, 0, 46, 20},
             {Stream::receive, Op::receive, 1, 66, 10},
             {Stream::compute, Op::backward, 1, 76, 20}});
  expect(1, {{Stream::receive, Op::receive, 0, 0, 13},
             {Stream::compute, Op::forward, 0, 13, 10},
             {Stream::compute, Op::backward, 0, 23, 20},
             {Stream::send, Op::send, 0, 43, 3},
             {Stream::receive, Op::receive, 1, 43, 0},
             {Stream::compute, Op::forward, 1, 43, 10},
             {Stream::compute, Op::backward, 1, 53, 20},
             {Stream::send, Op::send, 1, 73, 3}});
}

// Activations take 100 bytes, the workspace 10. Stage 1 of the pipeline above keeps one microbatch at a time.
TEST(PipelineWithCommunication, MarksEveryChangeOfMemory) {
  const Timeline timeline = run(small(), Detail::spans);
  std::vector<MemoryPoint> last;
  std::copy_if(timeline.memory.begin(), timeline.memory.end(), std::back_inserter(last),
               [](const MemoryPoint& point) { return point.rank == 1; });
  const std::vector<MemoryPoint> expected = {
      {1, milliseconds(0), {0}, {0}},                                          // before anything runs
      {1, milliseconds(13), {100}, {10}},                                      // forward 0
      {1, milliseconds(23), {100}, {0}},                                       // its workspace goes
      {1, milliseconds(23), {100}, {10}},                                      // backward 0
      {1, milliseconds(43), {0}, {0}},                                         // activation and workspace go
      {1, milliseconds(43), {100}, {10}},                                      // forward 1
      {1, milliseconds(53), {100}, {0}},  {1, milliseconds(53), {100}, {10}},  // backward 1
      {1, milliseconds(73), {0}, {0}},
  };
  EXPECT_EQ(last, expected);
}

TEST(PipelineWithCommunication, NamesItsStagesAndSource) {
  PricedProgram priced = make_pipeline(small());
  priced.program.stages[0].encoder_layers = 1;
  priced.program.stages[1].llm_layers = 1;
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::usage);
  EXPECT_EQ(timeline.stages, (std::vector<std::string>{"encoder 0", "llm 0"}));
  EXPECT_EQ(timeline.source, "simulated");
  EXPECT_TRUE(timeline.spans.empty());
  EXPECT_TRUE(timeline.memory.empty());
}

}  // namespace pipeline_test
}  // namespace dflop::testing
