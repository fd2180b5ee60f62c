// How much an iteration gains if something is free: small cases by hand.
#include "sim/analysis/relaxations.hpp"

#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "sim/engine.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace relaxations_test {

using Kind = Relaxation::Kind;
using std::chrono::milliseconds;

// Two stages, two microbatches, 1F1B, forward 10 ms, backward 20 ms, messages 3 ms: 96 ms.
//   messages free: (m + p - 1)(tf + tb) = 3 x 30
//   stage 0 free: stage 1 has F0 at 3 and works 60 ms, then its gradient takes 3: 66
//   stage 1 free: F0 0-10, F1 10-20, B0 20-40 (its gradient is back at 16), B1 40-60 (at 26)
//   without bubbles: each stage is busy 2 x 30
TEST(Relaxations, OfAPipelineFollowFromItsArithmetic) {
  Pipeline pipeline;
  pipeline.stages = 2;
  pipeline.microbatches = 2;
  pipeline.message = milliseconds(3);
  const PricedProgram priced = make_pipeline(pipeline);
  const std::vector<Relaxation> expected = {{Kind::free_stage, 0},
                                            {Kind::free_stage, 1},
                                            {Kind::free_messages},
                                            {Kind::balanced},
                                            {Kind::no_bubbles}};
  ASSERT_EQ(relaxations(priced.program), expected);
  const int makespans_ms[] = {66, 60, 90, 96, 60};
  for (std::size_t k = 0; k < expected.size(); ++k) {
    EXPECT_EQ(relaxed_makespan(priced.program, priced.costs, expected[k]), milliseconds(makespans_ms[k]))
        << "relaxation " << k;
  }
}

/// Two groups of one stage that reduce after two microbatches: forwards of 10 and 30, and of 21 and 12. The
/// collective takes 5. Everything else takes no time.
PricedProgram two_ranks() {
  const std::vector<Instruction> list = {{Op::forward, 0, 0, 0},     {Op::forward, 0, 1, 0},
                                         {Op::backward, 0, 0, 0},    {Op::backward, 0, 1, 0},
                                         {Op::all_reduce, 0, -1, 0}, {Op::optimizer_step, 0, -1, -1}};
  PricedProgram priced = make_program({list, list}, {}, {{{0, 1}, Bytes{8}}});
  priced.program.microbatches = 2;
  priced.program.groups[1].stage = 0;
  priced.program.groups[1].dp_rank = 1;
  for (Instruction& instruction : priced.program.instructions) instruction.stage = 0;
  priced.costs.instruction[0] = Nanoseconds(10);
  priced.costs.instruction[1] = Nanoseconds(30);
  priced.costs.instruction[6] = Nanoseconds(21);
  priced.costs.instruction[7] = Nanoseconds(12);
  priced.costs.collective = {Nanoseconds(5)};
  return priced;
}

TEST(Relaxations, OfRanksThatWaitForEachOther) {
  const PricedProgram priced = two_ranks();
  verify(priced.program);
  const std::vector<Relaxation> expected = {{Kind::free_stage, 0},
                                            {Kind::free_collectives},
                                            {Kind::no_stragglers},
                                            {Kind::balanced},
                                            {Kind::no_bubbles}};
  EXPECT_EQ(relaxations(priced.program), expected);
  const auto makespan = [&](Relaxation relaxation) {
    return relaxed_makespan(priced.program, priced.costs, relaxation);
  };
  EXPECT_EQ(simulate(priced.program, priced.costs, Detail::usage).makespan, Nanoseconds(45));
  EXPECT_EQ(makespan({Kind::free_stage, 0}), Nanoseconds(5));
  EXPECT_EQ(makespan({Kind::free_collectives}), Nanoseconds(40));
  EXPECT_EQ(makespan({Kind::free_communication}), Nanoseconds(40));
  // Microbatch 0 takes (10 + 21) / 2 = 15.5, rounded to 16; microbatch 1 takes (30 + 12) / 2 = 21: 37 + 5.
  EXPECT_EQ(makespan({Kind::no_stragglers}), Nanoseconds(42));
  // (10 + 30 + 21 + 12) / 4 = 18.25, rounded to 18: 36 + 5.
  EXPECT_EQ(makespan({Kind::balanced}), Nanoseconds(41));
  EXPECT_EQ(makespan({Kind::no_bubbles}), Nanoseconds(40));
}

// 7 of compute, then 1000 bytes of a message and 50 of a collective at 1 byte per nanosecond.
TEST(Relaxations, FreeTransfersOfASharedNetwork) {
  PricedProgram priced = make_program(
      {{{Op::forward, 0, 0, 0}, {Op::send, 0, 0, 0}, {Op::backward, 0, 0, 0}, {Op::all_reduce, 0, -1, 0}},
       {{Op::receive, 0, 0, 0}, {Op::forward, 0, 0, 0}, {Op::backward, 0, 0, 0}, {Op::all_reduce, 0, -1, 0}}},
      {{0, 1, 0, Bytes{1000}, Bytes{1000}}}, {{{0, 1}, Bytes{8}}});
  priced.costs.instruction[0] = Nanoseconds(7);
  Network network = shared_link(priced.program, Nanoseconds(0), 1e9, 1e9);
  network.phases.push_back({0, Nanoseconds(0), 50});  // the collective's 50 bytes
  network.first_phase.back() = 2;
  Conditions conditions;
  conditions.network = &network;
  const auto makespan = [&](Kind kind) {
    return relaxed_makespan(priced.program, priced.costs, {kind}, conditions);
  };
  EXPECT_EQ(simulate(priced.program, priced.costs, Detail::usage, conditions).makespan, Nanoseconds(1057));
  EXPECT_EQ(makespan(Kind::free_messages), Nanoseconds(57));
  EXPECT_EQ(makespan(Kind::free_collectives), Nanoseconds(1007));
  EXPECT_EQ(makespan(Kind::free_communication), Nanoseconds(7));
}

}  // namespace relaxations_test
}  // namespace dflop::testing
