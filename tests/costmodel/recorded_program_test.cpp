#include "costmodel/recorded/recorded.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>

#include "core/error.hpp"
#include "core/program/lowering.hpp"

namespace dflop {
namespace recorded_program_test {

constexpr std::int64_t kReceive = 3;  // its row in recording()

/// Two groups, ranks {0, 1} and {2}, one microbatch; the second enters a collective during its backward.
///   rank 0: forward 0-100, send 100-130, receive 100-250 (message 1), backward 250-300, start, wait 300-340
///   rank 2: receive 0-130, forward 130-170, start, backward 170-230, send 230-250, wait 230-340
/// The collective starts when rank 0 enters it, at 300, and takes 40.
Timeline recording() {
  Timeline timeline;
  timeline.makespan = Nanoseconds(340);
  timeline.stages = {"stage 0", "stage 1"};
  timeline.groups.resize(2);
  timeline.groups[0].ranks = 2;
  timeline.groups[1].first_rank = 2;
  timeline.groups[1].stage = 1;
  timeline.groups[1].model_state = {{10}, {20}, {30}};
  const auto add = [&](std::int32_t rank, Stream stream, Op op, std::int32_t microbatch, int start,
                       int duration, Bytes bytes, std::int32_t message, std::int32_t position,
                       std::int32_t work) {
    const auto stage = static_cast<std::uint16_t>(rank == 0 ? 0 : 1);
    timeline.spans.push_back({rank, stream, op, stage, microbatch, Nanoseconds(start), Nanoseconds(duration),
                              bytes, message, position, work});
  };
  add(0, Stream::compute, Op::forward, 0, 0, 100, {}, -1, 0, 0);
  add(2, Stream::receive, Op::receive, 0, 0, 130, {64}, 0, 0, -1);
  add(0, Stream::send, Op::send, 0, 100, 30, {64}, 0, 1, -1);
  add(0, Stream::receive, Op::receive, 0, 100, 150, {32}, 1, 2, -1);
  add(2, Stream::compute, Op::forward, 0, 130, 40, {}, -1, 1, -1);
  add(2, Stream::compute, Op::backward, 0, 170, 60, {}, -1, 3, -1);
  add(2, Stream::send, Op::send, 0, 230, 20, {32}, 1, 4, -1);
  add(2, Stream::receive, Op::all_reduce_wait, -1, 230, 110, {}, 0, 5, -1);
  add(0, Stream::compute, Op::backward, 0, 250, 50, {}, -1, 3, 0);
  add(0, Stream::collective, Op::all_reduce_start, -1, 300, 40, {8}, 0, 4, -1);
  add(2, Stream::collective, Op::all_reduce_start, -1, 300, 40, {8}, 0, 2, -1);
  add(0, Stream::receive, Op::all_reduce_wait, -1, 300, 40, {}, 0, 5, -1);
  timeline.works = {{{2, 20, 200}, {}}};
  timeline.memory = {{0, Nanoseconds(0), {}, {}},       {2, Nanoseconds(0), {}, {}},
                     {0, Nanoseconds(0), {500}, {7}},   {0, Nanoseconds(100), {500}, {}},
                     {2, Nanoseconds(130), {40}, {}},   {2, Nanoseconds(230), {}, {}},
                     {0, Nanoseconds(250), {500}, {9}}, {0, Nanoseconds(300), {}, {}}};
  return timeline;
}

/// Ranks 0 to 2 would leave one GPU half empty. Recorded durations already include the slowdown by
/// neighbors.
TEST(RecordedProgram, SharesGpus) {
  Timeline timeline = recording();
  timeline.shared_gpus = 2;
  EXPECT_THROW(recorded_program(timeline), Error);
  timeline.groups[1].ranks = 2;
  const RecordedProgram recorded = recorded_program(timeline);
  EXPECT_EQ(recorded.program.shared_gpus, 2);
  EXPECT_TRUE(recorded.costs.bandwidth.empty());
  EXPECT_EQ(recorded_program(recording()).program.shared_gpus, 0);
}

TEST(RecordedProgram, HasTheRecordedInstructionsAndTheirDurations) {
  const RecordedProgram recorded = recorded_program(recording());
  const Program& program = recorded.program;
  // Computations without a shape share one empty work after the others.
  const std::vector<Instruction> expected = {{Op::forward, 0, 0, 0},
                                             {Op::send, 0, 0, 0},
                                             {Op::receive, 0, 0, 1},
                                             {Op::backward, 0, 0, 0},
                                             {Op::all_reduce_start, 0, -1, 0},
                                             {Op::all_reduce_wait, 0, -1, 0},
                                             {Op::receive, 1, 0, 0},
                                             {Op::forward, 1, 0, 1},
                                             {Op::all_reduce_start, 1, -1, 0},
                                             {Op::backward, 1, 0, 1},
                                             {Op::send, 1, 0, 1},
                                             {Op::all_reduce_wait, 1, -1, 0}};
  EXPECT_EQ(program.instructions, expected);
  EXPECT_EQ(program.works, (std::vector<Work>{{{2, 20, 200}, {}}, {}}));
  EXPECT_EQ(program.microbatches, 1);
  EXPECT_EQ(program.stages, std::vector<Stage>(2));
  ASSERT_EQ(program.groups.size(), 2u);
  EXPECT_EQ(program.groups[1].first_rank, 2);
  EXPECT_EQ(program.groups[1].begin, 6);
  EXPECT_EQ(program.groups[1].end, 12);
  ASSERT_EQ(program.messages.size(), 2u);
  EXPECT_EQ(program.messages[1].source, 1);
  EXPECT_EQ(program.messages[1].destination, 0);
  EXPECT_EQ(program.messages[1].bytes, Bytes{32});
  EXPECT_EQ(program.messages[1].port_bytes, Bytes{32});
  ASSERT_EQ(program.collectives.size(), 1u);
  EXPECT_EQ(program.collectives[0].groups, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(program.collectives[0].bytes, Bytes{8});
  const auto ns = [](std::vector<int> times) {
    std::vector<Nanoseconds> result;
    for (const int time : times) result.push_back(Nanoseconds(time));
    return result;
  };
  EXPECT_EQ(recorded.costs.instruction, ns({100, 0, 0, 50, 0, 0, 0, 40, 0, 60, 0, 0}));
  EXPECT_EQ(recorded.costs.message, ns({30, 20}));
  EXPECT_EQ(recorded.costs.collective, ns({40}));
  EXPECT_EQ(recorded.costs.model_state[1], (ModelState{{10}, {20}, {30}}));
  EXPECT_TRUE(recorded.memory);
  EXPECT_EQ(recorded.costs.activation[0], Bytes{500});
  EXPECT_EQ(recorded.costs.activation[3], Bytes{500});
  EXPECT_EQ(recorded.costs.activation[9], Bytes{40});
  EXPECT_EQ(recorded.costs.workspace[0], Bytes{7});
  EXPECT_EQ(recorded.costs.workspace[3], Bytes{9});
}

// No compute follows rank 0's start, so both ranks enter immediately. With a backward there from 290 to 310,
// the collective that began at 300 is entered halfway; rank 2 could have entered at any time.
TEST(RecordedProgram, FindsHowLateACollectiveMayBeEntered) {
  EXPECT_EQ(recorded_program(recording()).program.collectives[0].ready, 0);
  Timeline timeline = recording();
  timeline.spans[8].start = Nanoseconds(290);
  timeline.spans[8].duration = Nanoseconds(20);
  std::swap(timeline.spans[8].position, timeline.spans[9].position);
  const double ready = recorded_program(timeline).program.collectives[0].ready;
  EXPECT_EQ(std::llround(ready * 20), 10);
  EXPECT_NE(std::llround((ready + 1e-9) * 20), 10);  // the latest entry that rounds to 10
}

// All NCCL kernels of a collective end together, but each begins when its rank enters.
TEST(RecordedProgram, TakesACollectiveFromItsLatestStart) {
  Timeline timeline = recording();
  timeline.spans[10].start = Nanoseconds(200);
  timeline.spans[10].duration = Nanoseconds(140);
  EXPECT_EQ(recorded_program(timeline).costs.collective[0], Nanoseconds(40));
}

TEST(RecordedProgram, GivesUpOnMemoryThatDoesNotFit) {
  for (const bool remove : {true, false}) {
    Timeline timeline = recording();
    if (remove) {
      timeline.memory.clear();
    } else {
      timeline.memory[4].activations = {39};
      timeline.memory[5].activations = {1};
    }
    const RecordedProgram recorded = recorded_program(timeline);
    EXPECT_FALSE(recorded.memory);
    EXPECT_EQ(recorded.costs.activation, std::vector<Bytes>(12));
    EXPECT_EQ(recorded.costs.workspace, std::vector<Bytes>(12));
  }
}

TEST(RecordedProgram, RejectsTimelinesThatAreNoRun) {
  const auto refused = [](const std::function<void(Timeline&)>& spoil, const std::string& key,
                          const std::string& text) {
    Timeline timeline = recording();
    spoil(timeline);
    try {
      recorded_program(timeline, "t.json", 2);
      ADD_FAILURE() << "expected an error with '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_EQ(error.context(), "t.json: key 'iterations[2]." + key + "'");
      EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
    }
  };
  using T = Timeline;
  refused([](T& t) { t.spans.clear(); }, "spans", "dflop simulate --out");
  refused([](T& t) { t.stalls.resize(2); }, "stalls", "found 2 groups");
  refused([](T& t) { t.spans[4].duration = Nanoseconds(-1); }, "spans.duration_ns[4]", "found -1");
  refused([](T& t) { t.spans[4].start = Nanoseconds(-3); }, "spans.start_ns[4]", "found -3");
  refused([](T& t) { t.spans[4].bytes = {-5}; }, "spans.bytes[4]", "found -5");
  const std::int64_t large = std::int64_t{3} << 58;
  refused([&](T& t) { t.spans[1].duration = t.spans[4].duration = Nanoseconds(large); }, "spans.duration_ns",
          "2^60 ns");
  refused([&](T& t) { t.spans[1].bytes = t.spans[2].bytes = {large}; }, "spans.bytes", "2^60 bytes");
  refused([](T& t) { t.spans[4].rank = 1; }, "spans.rank[4]", "found 1");
  refused([](T& t) { t.groups.emplace_back().first_rank = 5; }, "spans", "found none of rank 5");
  refused([](T& t) { t.spans[4].position = -1; }, "spans.position[4]", "found -1");
  refused([](T& t) { t.spans[4].position = 6; }, "spans.position[4]", "from 0 to 5");
  refused([](T& t) { t.spans[4].position = 0; }, "spans.position[4]", "found 0 also in row 1");
  // A missing span leaves one position too many.
  refused([](T& t) { t.spans.erase(t.spans.begin()); }, "spans.position[10]", "found 5");
  refused([](T& t) { t.spans[kReceive].message = -1; }, "spans.message[3]", "found -1");
  refused([](T& t) { t.spans[kReceive].message = 12; }, "spans.message[3]", "from 0 to 11");
  refused([](T& t) { t.spans[kReceive].message = 0; }, "spans.message[1]", "another in row 3");
  refused([](T& t) { t.spans[kReceive].message = 2; }, "spans.message[6]", "never received");
  refused([](T& t) { t.spans[6].message = 2; }, "spans.message[3]", "never sent");
  refused([](T& t) { t.spans[6].message = t.spans[kReceive].message = 2; }, "spans.message", "no message 1");
  refused([](T& t) { t.spans[kReceive].bytes = {31}; }, "spans.bytes[3]", "expected 32");
  refused([](T& t) { t.spans[10].bytes = {9}; }, "spans.bytes[10]", "expected 8, as in row 9");
  refused([](T& t) { t.spans[9].message = t.spans[10].message = 1; }, "spans.message", "no collective 0");
  refused([](T& t) { t.spans[0].microbatch = -1; }, "spans.microbatch[0]", "found -1");
  refused([](T& t) { t.spans[0].microbatch = 12; }, "spans.microbatch[0]", "from 0 to 11");
  // The program itself is invalid: a backward before its forward, or a wait for something not started.
  refused([](T& t) { std::swap(t.spans[0].position, t.spans[8].position); }, "spans", "out of order");
  refused([](T& t) { t.spans[7].message = 1; }, "spans", "index 1 is out of range");
}

}  // namespace recorded_program_test
}  // namespace dflop
