// These tests put the engine into specific situations: collectives, deadlocks, costs that do not fit.
#include "sim/engine.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "sim/event_queue.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace engine_test {

constexpr Instruction kForward{Op::forward, 0, 0, 0};
constexpr Instruction kBackward{Op::backward, 0, 0, 0};
constexpr Instruction kReduce{Op::all_reduce, 0, -1, 0};
constexpr Instruction kStep{Op::optimizer_step, 0, -1, -1};

// Group 0 works 5 + 10, group 1 works 30 + 10. The collective takes 7 from 40 on, followed by steps of 4 and
// 2.
//   group 0: busy 15 + 4, idle 15-40 bubble, 40-47 wait, end 51 = makespan
//   group 1: busy 40 + 2, 40-47 wait, end 49, then 2 of bubble
TEST(Engine, CollectiveStartsWithItsLastParticipant) {
  PricedProgram priced =
      make_program({{kForward, kBackward, kReduce, kStep}, {kForward, kBackward, kReduce, kStep}}, {},
                   {{{0, 1}, Bytes{64}}});
  priced.costs.instruction = {Nanoseconds(5),  Nanoseconds(10), Nanoseconds(0), Nanoseconds(4),
                              Nanoseconds(30), Nanoseconds(10), Nanoseconds(0), Nanoseconds(2)};
  priced.costs.collective = {Nanoseconds(7)};
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
  EXPECT_EQ(timeline.makespan, Nanoseconds(51));
  EXPECT_EQ(timeline.groups[0].busy, Nanoseconds(19));
  EXPECT_EQ(timeline.groups[0].bubble, Nanoseconds(25));
  EXPECT_EQ(timeline.groups[0].wait, Nanoseconds(7));
  EXPECT_EQ(timeline.groups[0].transfer, Nanoseconds(7));
  EXPECT_EQ(timeline.groups[1].busy, Nanoseconds(42));
  EXPECT_EQ(timeline.groups[1].bubble, Nanoseconds(2));
  EXPECT_EQ(timeline.groups[1].wait, Nanoseconds(7));
  int collectives = 0;
  for (const Span& span : timeline.spans) {
    if (span.stream != Stream::collective) continue;
    ++collectives;
    EXPECT_EQ(span.op, Op::all_reduce);
    EXPECT_EQ(span.start, Nanoseconds(40));
    EXPECT_EQ(span.duration, Nanoseconds(7));
    EXPECT_EQ(span.bytes, Bytes{64});
    EXPECT_EQ(span.message, 0);
  }
  EXPECT_EQ(collectives, 2);
}

// Two messages of 10 ns posted at 0 and at 4 ns are in flight from 0 to 14: 14 ns, not 20.
TEST(Engine, TransferCountsOverlappingMessagesOnce) {
  const Instruction send_first{Op::send, 0, 0, 0};
  const Instruction send_second{Op::send, 0, 0, 1};
  const Instruction receive_first{Op::receive, 0, 0, 0};
  const Instruction receive_second{Op::receive, 0, 0, 1};
  PricedProgram priced =
      make_program({{send_first, kForward, send_second, kBackward}, {receive_first, receive_second}},
                   {{0, 1, 0, Bytes{1}, Bytes{1}}, {0, 1, 0, Bytes{1}, Bytes{1}}}, {});
  priced.costs.instruction[1] = Nanoseconds(4);
  priced.costs.message = {Nanoseconds(10), Nanoseconds(10)};
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::usage);
  EXPECT_EQ(timeline.makespan, Nanoseconds(14));
  EXPECT_EQ(timeline.groups[0].transfer, Nanoseconds(14));
  EXPECT_EQ(timeline.groups[1].transfer, Nanoseconds(14));
  // Group 1 waits 0-10 for the first message and 10-14 for the second. Messages are in flight the whole time.
  EXPECT_EQ(timeline.groups[1].wait, Nanoseconds(14));
}

TEST(Engine, RunsAnEmptyProgram) {
  const Timeline timeline = simulate(Program{}, ProgramCosts{}, Detail::spans);
  EXPECT_EQ(timeline.makespan, Nanoseconds(0));
  EXPECT_TRUE(timeline.groups.empty());
}

/// Expects an internal Error whose text contains `text`.
void expect_internal_error(const PricedProgram& priced, const std::string& text) {
  try {
    simulate(priced.program, priced.costs, Detail::usage);
    FAIL() << "expected an error with '" << text << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
  }
}

TEST(Engine, NamesWhoDeadlocksAndOnWhat) {
  const Instruction send_down{Op::send, 0, 0, 0};
  const Instruction send_up{Op::send, 0, 0, 1};
  const Instruction receive_down{Op::receive, 0, 0, 0};
  const Instruction receive_up{Op::receive, 0, 0, 1};
  const std::vector<Message> messages = {{0, 1, 0, Bytes{1}, Bytes{1}}, {1, 0, 0, Bytes{1}, Bytes{1}}};
  // Each receives before it sends.
  const PricedProgram crossed =
      make_program({{receive_up, send_down}, {receive_down, send_up}, {kStep}}, messages, {});
  expect_internal_error(crossed, "2 of 3 groups do not finish");
  expect_internal_error(crossed,
                        "group 0 (stage 0, dp rank 0) waits for message 1 (microbatch 0) of group 1");
  expect_internal_error(crossed,
                        "group 1 (stage 1, dp rank 0) waits for message 0 (microbatch 0) of group 0");
}

TEST(Engine, NamesTheCollectiveThatNeverStarts) {
  expect_internal_error(make_program({{kReduce}, {kStep}}, {}, {{{0, 1}, Bytes{1}}}),
                        "group 0 (stage 0, dp rank 0) waits for the other participants of collective 0");
}

TEST(Engine, ShortensALongListOfWaitingGroups) {
  std::vector<std::int32_t> all;
  for (std::int32_t g = 0; g < 21; ++g) all.push_back(g);
  std::vector<std::vector<Instruction>> lists(20, {kReduce});
  lists.push_back({kStep});
  const PricedProgram priced = make_program(lists, {}, {{all, Bytes{1}}});
  expect_internal_error(priced, "group 7 (stage 7");
  expect_internal_error(priced, "; and 12 more");
}

// A forward of 10 ns keeps 100 bytes, the input part of 20 ns restores 50 more, and the weight part of 30 ns
// frees all 150. They need 10, 20 and 5 while they run; the state takes 1,000. So the peak is 1,000 + 150 +
// 5, from 30 on, and not 1,000 + 100 + 20.
TEST(Engine, CountsWhatAnInputPartKeepsForItsWeightPart) {
  const Instruction input{Op::backward_input, 0, 0, 0};
  const Instruction weight{Op::backward_weight, 0, 0, 0};
  PricedProgram priced = make_program({{kForward, input, weight}}, {}, {});
  priced.costs.instruction = {Nanoseconds(10), Nanoseconds(20), Nanoseconds(30)};
  priced.costs.activation = {Bytes{100}, Bytes{50}, Bytes{150}};
  priced.costs.workspace = {Bytes{10}, Bytes{20}, Bytes{5}};
  priced.costs.model_state[0] = {Bytes{1'000}, {}, {}};
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
  EXPECT_EQ(timeline.groups[0].peak_memory, Bytes{1'155});
  EXPECT_EQ(timeline.groups[0].peak_activations, Bytes{150});
  EXPECT_EQ(timeline.groups[0].peak_buffers, Bytes{5});
  const std::vector<MemoryPoint> expected = {
      {0, Nanoseconds(0), {0}, {0}},     {0, Nanoseconds(0), {100}, {10}}, {0, Nanoseconds(10), {100}, {0}},
      {0, Nanoseconds(10), {100}, {20}}, {0, Nanoseconds(30), {150}, {0}}, {0, Nanoseconds(30), {150}, {5}},
      {0, Nanoseconds(60), {0}, {0}}};
  EXPECT_EQ(timeline.memory, expected);
}

// The weight part waits for a message that arrives at 100. The peak is at the end of the input part, at 30.
TEST(Engine, SeesAPeakAtTheEndOfAnInputPart) {
  const Instruction input{Op::backward_input, 0, 0, 0};
  const Instruction weight{Op::backward_weight, 0, 0, 0};
  const Instruction receive{Op::receive, 0, 0, 0};
  const Instruction send{Op::send, 0, 0, 0};
  PricedProgram priced =
      make_program({{kForward, input, receive, weight}, {send}}, {{1, 0, 0, Bytes{1}, Bytes{1}}}, {});
  priced.costs.instruction = {Nanoseconds(10), Nanoseconds(20), Nanoseconds(0), Nanoseconds(30),
                              Nanoseconds(0)};
  priced.costs.message = {Nanoseconds(100)};
  priced.costs.activation = {Bytes{100}, Bytes{50}, Bytes{0}, Bytes{150}, Bytes{0}};
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::usage);
  EXPECT_EQ(timeline.groups[0].peak_memory, Bytes{150});
  EXPECT_EQ(timeline.groups[0].peak_time, Nanoseconds(30));
}

TEST(Engine, RejectsMemoryThatDoesNotReturn) {
  PricedProgram priced = make_program({{kForward, kBackward}}, {}, {});
  priced.costs.model_state[0] = {Bytes{50}, {}, {}};
  priced.costs.activation = {Bytes{8}, Bytes{3}};
  expect_internal_error(priced, "expected the activations of group 0 to return to 0 bytes, found 5");
}

TEST(Engine, RejectsCostsThatDoNotFit) {
  const PricedProgram good = make_program({{kForward, kBackward, kReduce}}, {}, {{{0}, Bytes{1}}});
  EXPECT_NO_THROW(simulate(good.program, good.costs, Detail::usage));
  const auto expect_refused = [&](const std::function<void(ProgramCosts&)>& spoil, const std::string& text) {
    PricedProgram priced = good;
    spoil(priced.costs);
    expect_internal_error(priced, text);
  };
  expect_refused([](ProgramCosts& c) { c.instruction.pop_back(); },
                 "expected 3 costs of instructions, found 2");
  expect_refused([](ProgramCosts& c) { c.message.emplace_back(1); }, "expected 0 costs of messages, found 1");
  expect_refused([](ProgramCosts& c) { c.collective.clear(); }, "expected 1 costs of collectives, found 0");
  expect_refused([](ProgramCosts& c) { c.model_state.clear(); }, "expected 1 costs of model states, found 0");
  expect_refused([](ProgramCosts& c) { c.activation.pop_back(); },
                 "expected 3 costs of activations, found 2");
  expect_refused([](ProgramCosts& c) { c.workspace.pop_back(); }, "expected 3 costs of workspaces, found 2");
  expect_refused([](ProgramCosts& c) { c.instruction[1] = Nanoseconds(-4); }, "found -4 ns at 1");
  expect_refused([](ProgramCosts& c) { c.collective[0] = Nanoseconds(-5); }, "found -5 ns at 0");
}

TEST(EventQueue, OrdersByTimeAndThenByInsertion) {
  EventQueue queue(4);
  queue.push(Nanoseconds(5), 0);
  queue.push(Nanoseconds(3), 1);
  queue.push(Nanoseconds(5), 2);
  queue.push(Nanoseconds(3), 3);
  // 3 ns before 5 ns; at equal times, in the order in which they were pushed.
  for (const std::int32_t what : {1, 3, 0, 2}) EXPECT_EQ(queue.pop().what, what);
  EXPECT_TRUE(queue.empty());
}

// Random pushes and pops with few distinct times: pops at one time preserve the order of the pushes.
TEST(EventQueue, KeepsTheOrderAmongManyEvents) {
  Random random(3);
  EventQueue queue(1000);
  for (std::int32_t k = 0; k < 1000; ++k) queue.push(Nanoseconds(random.below(20)), k);
  Event before = queue.pop();
  for (int k = 1; k < 1000; ++k) {
    const Event event = queue.pop();
    ASSERT_TRUE(before.time < event.time || (before.time == event.time && before.what < event.what));
    before = event;
  }
  EXPECT_TRUE(queue.empty());
}

}  // namespace engine_test
}  // namespace dflop::testing
