#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/pipelines.hpp"

namespace dflop {
namespace verify_test {

/// A valid program of two encoder and two LLM groups, for tests to break in one place.
Program valid_program() {
  const Plan plan = testing::disaggregated_plan({1, 1, 2, {4}}, {1, 2, 2, {3, 3}}, 3, 12);
  Random random(3);
  const Batch batch = testing::random_batch(random, 12);
  return lower(plan, testing::tiny_model(), batch, testing::random_assignment(random, plan, batch.size()));
}

/// Index of the n-th instruction with this op.
std::size_t find(const Program& program, Op op, int n = 0) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].op == op && n-- == 0) return i;
  }
  ADD_FAILURE() << "no such instruction";
  return 0;
}

void expect_refused(const std::string& part, const std::function<void(Program&)>& damage,
                    Program program = valid_program()) {
  verify(program);
  damage(program);
  try {
    verify(program);
    ADD_FAILURE() << "accepted although " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// Group 5 of six belongs to the last stage, which reshards nothing.
TEST(Verify, NothingGoesPastAHub) {
  expect_refused("bypasses the hub, group 5", [](Program& p) { p.hub = 5; });
  expect_refused("expected a group as the hub, but group 6 does not exist", [](Program& p) { p.hub = 6; });
}

TEST(Verify, FindsBrokenPrograms) {
  expect_refused("out of range", [](Program& p) { p.instructions[find(p, Op::forward)].index = 999; });
  expect_refused("microbatch 3 does not exist",
                 [](Program& p) { p.instructions[find(p, Op::forward)].microbatch = 3; });
  expect_refused("its stage does not exist",
                 [](Program& p) { p.instructions[find(p, Op::forward)].stage = 9; });
  expect_refused("belongs to another group", [](Program& p) { p.messages[0].source ^= 1; });
  expect_refused("twice", [](Program& p) {
    const std::size_t first = find(p, Op::send, 0);
    p.instructions[find(p, Op::send, 1)].index = p.instructions[first].index;
  });
  expect_refused("out of order on this stage",
                 [](Program& p) { p.instructions[find(p, Op::backward)].op = Op::forward; });
  expect_refused("is not completed",
                 [](Program& p) { p.instructions[find(p, Op::backward)].op = Op::backward_input; });
  expect_refused("expected each participant to enter collective 0 once",
                 [](Program& p) { p.collectives[0].groups.push_back(3); });
  expect_refused("names group", [](Program& p) { p.messages[0].destination = 77; });
  expect_refused("must begin where the instructions of the previous group end",
                 [](Program& p) { p.groups[1].begin += 1; });
  expect_refused("belong to no group", [](Program& p) { p.instructions.push_back(p.instructions.back()); });
}

TEST(Verify, RejectsGroupsThatAreOfBothModulesOfSharedGpus) {
  Plan plan = testing::disaggregated_plan({2, 1, 2, {4}}, {4, 1, 1, {6}}, 1, 2);
  plan.layout = Layout::shared;
  plan.encoder_share = 0.5;
  Random random(3);
  const Batch batch = testing::random_batch(random, 2);
  const Program good = lower(plan, testing::tiny_model(), batch, {1, 1, {0, 0}});
  verify(good);
  const auto refused = [&](int gpus, const std::string& part) {
    Program program = good;
    program.shared_gpus = gpus;
    try {
      verify(program);
      ADD_FAILURE() << "accepted " << gpus;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  EXPECT_EQ(good.shared_gpus, 4);
  refused(-1, "-1 shared GPUs");
  refused(3, "expected ranks 2 to 3 in the same module, on 3 shared GPUs");
  refused(5, "expected ranks 4 to 7 in the same module");
  refused(2, "expected ranks 4 to 7 in the same module");
}

/// One group with two reductions that become ready while its backward runs.
Program program_with_late_entries() {
  Program program;
  program.microbatches = 1;
  program.stages.resize(1);
  program.works.resize(1);
  program.collectives = {{.groups = {0}, .bytes = {8}, .ready = 0.5},
                         {.groups = {0}, .bytes = {8}, .ready = 1}};
  program.instructions = {{Op::forward, 0, 0, 0},           {Op::all_reduce_start, 0, -1, 0},
                          {Op::all_reduce_start, 0, -1, 1}, {Op::backward, 0, 0, 0},
                          {Op::all_reduce_wait, 0, -1, 0},  {Op::all_reduce_wait, 0, -1, 1},
                          {Op::optimizer_step, 0, -1, -1}};
  program.groups = {{0, 1, 0, 0, 0, 7}};
  return program;
}

TEST(Verify, FindsBrokenLateEntries) {
  const auto refused = [](const std::string& part, const std::function<void(Program&)>& damage) {
    expect_refused(part, damage, program_with_late_entries());
  };
  const std::string out_of_order = "expected values of 'ready' from 0 to 1, in increasing order";
  refused(out_of_order, [](Program& p) { std::swap(p.collectives[0], p.collectives[1]); });
  refused(out_of_order, [](Program& p) { p.collectives[1].ready = 1.001; });
  refused(out_of_order, [](Program& p) { p.collectives[0].ready = -0.001; });
  refused(out_of_order, [](Program& p) { p.collectives[0].ready = std::nan(""); });
  refused("expected compute after the all_reduce_start before it",
          [](Program& p) { std::swap(p.instructions[3], p.instructions[4]); });
  refused("expected compute after its last all_reduce_start", [](Program& p) {
    std::swap(p.instructions[1], p.instructions[3]);
    p.instructions = {p.instructions[0], p.instructions[1], p.instructions[2]};
    p.groups[0].end = 3;
  });
  refused("waits for a collective that it has not started", [](Program& p) { p.instructions[5].index = 0; });
  refused("never waits for collective 1", [](Program& p) { p.instructions[5] = p.instructions[6]; });
}

// Two groups of one dp rank share the microbatches of stage 0: each microbatch runs on one of them.
TEST(Verify, AcceptsAStageThatGroupsShareByMicrobatch) {
  Plan plan = testing::disaggregated_plan({1, 1, 2, {4}}, {1, 2, 1, {3, 3}}, 3, 6);
  plan.layout = Layout::colocated;
  plan.order = OrderKind::encoder_in_bubbles;
  Random random(3);
  const Batch batch = testing::random_batch(random, 6);
  const Program good = lower(plan, testing::tiny_model(), batch, testing::random_assignment(random, plan, 6));
  verify(good);
  const auto refused = [&](const std::string& part, int from, int to) {
    Program program = good;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      Instruction& instruction = program.instructions[i];
      if (instruction.stage == 0 && instruction.microbatch == from && is_compute(instruction.op)) {
        instruction.microbatch = to;
      }
    }
    try {
      verify(program);
      ADD_FAILURE() << "accepted although " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused("microbatch 0 runs twice on stage 0", 1, 0);  // 0 is on group 0, 1 on group 1
  refused("out of order on this stage", 2, 0);          // both on group 0
  Program without = good;                               // microbatch 1 on no group
  for (Instruction& instruction : without.instructions) {
    if (instruction.stage == 0 && instruction.microbatch == 1 && is_compute(instruction.op)) {
      instruction.op = Op::optimizer_step;
    }
  }
  try {
    verify(without);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("microbatch 1 is not completed on stage 0 of dp rank 0"),
              std::string::npos)
        << error.what();
  }
}

TEST(Verify, FindsADeadlock) {
  // Two stages, one microbatch. The first stage waits for the gradient before it sends the activation that
  // the gradient depends on: a deadlock.
  const Plan plan = testing::disaggregated_plan({1, 1, 1, {4}}, {1, 1, 1, {6}}, 1, 1);
  const Batch batch = {{"a", Modality::image, {{3, 16, 256}}, 30, 40}};
  Program program = lower(plan, testing::tiny_model(), batch, {1, 1, {0}});
  verify(program);
  ASSERT_EQ(program.instructions[1].op, Op::reshard_send);
  ASSERT_EQ(program.instructions[2].op, Op::reshard_receive);
  std::swap(program.instructions[1], program.instructions[2]);
  try {
    verify(program);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("group 0, instruction 1 (reshard_receive): deadlock"),
              std::string::npos)
        << error.what();
  }
}

TEST(Verify, FindsMessagesThatOvertakeOnAChannel) {
  // Groups 2 -> 4 carry activations of microbatches 0, 1, 2 in this order; receiving 1 before 0 is rejected.
  // With asynchronous sends this would not deadlock, but channels preserve order.
  expect_refused("earlier on this channel", [](Program& p) {
    std::vector<std::size_t> receives;
    for (std::int64_t i = p.groups[4].begin; i < p.groups[4].end; ++i) {
      if (p.instructions[i].op == Op::receive) receives.push_back(i);
    }
    std::swap(p.instructions[receives[1]], p.instructions[receives[2]]);
  });
}

TEST(Verify, ChannelsLeadFromStageToStage) {
  // Rank 0 holds stages 0 and 3, rank 1 stages 1 and 2. Activations 0 -> 1 and gradients 3 -> 2 go the same
  // way between the ranks and may overtake each other; activations of microbatches 0 and 1 may not.
  const RawPipeline pipeline =
      testing::equal_pipeline({OrderKind::zb_v, 2, 2, 4}, Nanoseconds(10), Nanoseconds(10), Nanoseconds(10));
  Program program = make_program(pipeline).program;
  verify(program);
  std::vector<std::size_t> activations;
  for (std::int64_t i = program.groups[1].begin; i < program.groups[1].end; ++i) {
    const Instruction& instruction = program.instructions[i];
    const bool before_forward =
        instruction.op == Op::receive && program.instructions[i + 1].op == Op::forward;
    if (before_forward && instruction.stage == 1) activations.push_back(i);
  }
  std::swap(program.instructions[activations[0]], program.instructions[activations[1]]);
  EXPECT_THROW(verify(program), Error);
}

TEST(Verify, AcceptsSplitBackward) {
  Program program;
  program.microbatches = 1;
  program.stages.resize(1);
  program.works.resize(1);
  program.instructions = {
      {Op::forward, 0, 0, 0}, {Op::backward_input, 0, 0, 0}, {Op::backward_weight, 0, 0, 0}};
  program.groups = {{0, 1, 0, 0, 0, 3}};
  verify(program);
  std::swap(program.instructions[1], program.instructions[2]);
  EXPECT_THROW(verify(program), Error);  // weight before input
}

}  // namespace verify_test
}  // namespace dflop
