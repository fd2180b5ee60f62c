// Reorders work, and compares with programs made in that order.
#include "core/program/reorder.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "sim/engine.hpp"
#include "tests/core/fixtures.hpp"
#include "tests/core/pipelines.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace reorder_test {

void expect_equal(const PricedProgram& found, const PricedProgram& expected) {
  EXPECT_EQ(found.program.instructions, expected.program.instructions);
  EXPECT_EQ(found.program.microbatches, expected.program.microbatches);
  EXPECT_EQ(found.costs.instruction, expected.costs.instruction);
  EXPECT_EQ(found.costs.message, expected.costs.message);
  EXPECT_EQ(found.costs.activation, expected.costs.activation);
  EXPECT_EQ(found.costs.workspace, expected.costs.workspace);
  EXPECT_EQ(simulate(found.program, found.costs, Detail::spans),
            simulate(expected.program, expected.costs, Detail::spans));
}

TEST(Reorder, ToTheSameOrderChangesNothing) {
  Random random(3);
  for_each_shape(4, 8, 3, [&](const PipelineShape& shape) {
    if (shape.spreads_encoder()) return;  // does not order the same work
    const PricedProgram priced = make_program(random_pipeline(random, shape));
    expect_equal(reorder(priced.program, priced.costs, step_order(priced.program)), priced);
    expect_equal(
        reorder(priced.program, priced.costs, order_of_kind(priced.program, priced.costs, shape.kind)),
        priced);
    const auto kind = order_kind_of(priced.program, priced.costs);
    ASSERT_TRUE(kind.has_value());
    EXPECT_EQ(order_of_kind(priced.program, priced.costs, *kind), step_order(priced.program));
  });
}

// In a raw pipeline a whole backward takes as long as both of its parts together.
TEST(Reorder, ToAnotherOrderEqualsThatOrdersProgram) {
  Random random(4);
  const OrderKind kinds[] = {OrderKind::gpipe, OrderKind::one_f_one_b, OrderKind::zb_h1, OrderKind::zb_h2};
  for (int p = 1; p <= 4; ++p) {
    for (int m = 1; m <= 8; ++m) {
      RawPipeline pipeline = random_pipeline(random, {OrderKind::gpipe, p, 1, m});
      for (const OrderKind from : kinds) {
        pipeline.shape.kind = from;
        const PricedProgram priced = make_program(pipeline);
        for (const OrderKind to : kinds) {
          if (splits_backward(to) && !splits_backward(from)) continue;
          SCOPED_TRACE(std::string(to_string(from)) + " to " + std::string(to_string(to)));
          pipeline.shape.kind = to;
          expect_equal(reorder(priced.program, priced.costs, order_of_kind(priced.program, priced.costs, to)),
                       make_program(pipeline));
        }
      }
    }
  }
}

// Input parts of 60 and weight parts of 40 ns: the weight share is 0.4 of each whole backward.
TEST(Reorder, SplitsBackwardsByTheirWeightShare) {
  for (const OrderKind kind : {OrderKind::zb_h1, OrderKind::zb_h2}) {
    RawPipeline pipeline =
        equal_pipeline({OrderKind::one_f_one_b, 4, 1, 9}, Nanoseconds(50), Nanoseconds(60), Nanoseconds(40));
    const PricedProgram whole = make_program(pipeline);
    const Reordering split{0, 0.4};
    pipeline.shape.kind = kind;
    expect_equal(
        reorder(whole.program, whole.costs, order_of_kind(whole.program, whole.costs, kind, split), split),
        make_program(pipeline));
    EXPECT_THROW(order_of_kind(whole.program, whole.costs, kind), Error);
    EXPECT_THROW(reorder(whole.program, whole.costs, order_of_kind(whole.program, whole.costs, kind, split)),
                 Error);
  }
}

TEST(Reorder, RepeatsAndDropsMicrobatches) {
  Random random(6);
  for (const OrderKind kind : {OrderKind::gpipe, OrderKind::one_f_one_b, OrderKind::zb_h1}) {
    for (int more = 1; more <= 11; ++more) {
      RawPipeline pipeline = random_pipeline(random, {kind, 3, 1, 4});
      const PricedProgram priced = make_program(pipeline);
      const Reordering repeated{more, {}};
      const PricedProgram found =
          reorder(priced.program, priced.costs, order_of_kind(priced.program, priced.costs, kind, repeated),
                  repeated);
      const auto repeat = [&](auto& table) {
        for (auto& row : table.rows) {
          row.resize(4);
          for (int j = 4; j < more; ++j) row.push_back(row[j % 4]);
          row.resize(more);
        }
      };
      repeat(pipeline.forward);
      repeat(pipeline.backward);
      repeat(*pipeline.backward_weight);
      repeat(*pipeline.activation);
      repeat(pipeline.message);
      pipeline.shape.microbatches = more;
      const PricedProgram expected = make_program(pipeline);
      // The numbering of messages differs.
      const Timeline a = simulate(found.program, found.costs, Detail::usage);
      const Timeline b = simulate(expected.program, expected.costs, Detail::usage);
      EXPECT_EQ(a.makespan, b.makespan) << more;
      EXPECT_EQ(a.groups, b.groups) << more;
      EXPECT_EQ(found.program.messages.size(), expected.program.messages.size());
    }
  }
}

/// Encoder and LLM with reshard, reductions and optimizer steps.
Plan plan_of(OrderKind order, Bytes gradient_bucket) {
  Plan plan = disaggregated_plan({1, 2, 2, {2, 2}}, {2, 2, 3, {3, 3}}, 5, 40);
  plan.order = order;
  plan.gradient_bucket = gradient_bucket;
  return plan;
}

void turn_one_plans_order_into_the_other(Bytes gradient_bucket) {
  Random random(7);
  const Batch batch = random_batch(random, 40);
  const Plan plan = plan_of(OrderKind::one_f_one_b, gradient_bucket);
  const Assignment assignment = random_assignment(random, plan, batch.size());
  const auto priced = [&](OrderKind order) {
    PricedProgram result;
    result.program = lower(plan_of(order, gradient_bucket), tiny_model(), batch, assignment);
    result.costs.instruction.assign(result.program.instructions.size(), Nanoseconds(0));
    result.costs.activation.resize(result.program.instructions.size());
    result.costs.workspace.resize(result.program.instructions.size());
    for (std::size_t i = 0; i < result.program.instructions.size(); ++i) {
      const Instruction& instruction = result.program.instructions[i];
      if (!is_compute(instruction.op)) continue;
      const int unit = instruction.op == Op::forward ? 10 : 23;
      result.costs.instruction[i] = Nanoseconds(unit * (1 + instruction.microbatch) + instruction.stage);
      result.costs.activation[i] = Bytes{1 + instruction.microbatch};
    }
    for (std::size_t m = 0; m < result.program.messages.size(); ++m) {
      result.costs.message.push_back(Nanoseconds(static_cast<std::int64_t>(m % 7)));
    }
    result.costs.collective.assign(result.program.collectives.size(), Nanoseconds(100));
    result.costs.model_state.resize(result.program.groups.size());
    return result;
  };
  const PricedProgram gpipe = priced(OrderKind::gpipe);
  const PricedProgram one_f_one_b = priced(OrderKind::one_f_one_b);
  expect_equal(
      reorder(gpipe.program, gpipe.costs, order_of_kind(gpipe.program, gpipe.costs, OrderKind::one_f_one_b)),
      one_f_one_b);
  expect_equal(reorder(one_f_one_b.program, one_f_one_b.costs,
                       order_of_kind(one_f_one_b.program, one_f_one_b.costs, OrderKind::gpipe)),
               gpipe);
}

TEST(Reorder, TurnsOnePlansOrderIntoTheOther) {
  turn_one_plans_order_into_the_other(Bytes{});
}

// Except on the last stage, the last backward begins with a receive, which comes before the starts of
// reductions.
TEST(Reorder, TurnsOnePlansOrderIntoTheOtherWithGradientBuckets) {
  turn_one_plans_order_into_the_other(Bytes{1'000});
}

/// One rank: F0 B0 F1 start B1 wait step, with microbatches in this order.
PricedProgram with_background_reduction() {
  PricedProgram priced;
  Program& program = priced.program;
  program.microbatches = 2;
  program.stages.resize(1);
  program.works.resize(1);
  program.collectives = {{.groups = {0}, .bytes = {8}, .ready = 0.5}};
  program.instructions = {{Op::forward, 0, 0, 0},         {Op::backward, 0, 0, 0},
                          {Op::forward, 0, 1, 0},         {Op::all_reduce_start, 0, -1, 0},
                          {Op::backward, 0, 1, 0},        {Op::all_reduce_wait, 0, -1, 0},
                          {Op::optimizer_step, 0, -1, -1}};
  program.groups = {{0, 1, 0, 0, 0, 7}};
  priced.costs.instruction.assign(7, Nanoseconds(10));
  priced.costs.activation.resize(7);
  priced.costs.workspace.resize(7);
  priced.costs.collective = {Nanoseconds(4)};
  priced.costs.model_state.resize(1);
  return priced;
}

TEST(Reorder, KeepsTheReductionWithTheLastBackward) {
  const PricedProgram priced = with_background_reduction();
  expect_equal(reorder(priced.program, priced.costs, step_order(priced.program)), priced);
  const StepOrder order = {{{Op::forward, 0, 1},
                            {Op::forward, 0, 0},
                            {Op::backward_input, 0, 1},
                            {Op::backward, 0, 0},
                            {Op::backward_weight, 0, 1}}};
  const PricedProgram found = reorder(priced.program, priced.costs, order, {0, 0.3});
  const std::vector<Instruction> expected = {
      {Op::forward, 0, 1, 0},          {Op::forward, 0, 0, 0},           {Op::backward_input, 0, 1, 0},
      {Op::backward, 0, 0, 0},         {Op::all_reduce_start, 0, -1, 0}, {Op::backward_weight, 0, 1, 0},
      {Op::all_reduce_wait, 0, -1, 0}, {Op::optimizer_step, 0, -1, -1}};
  EXPECT_EQ(found.program.instructions, expected);
  EXPECT_EQ(found.costs.instruction[2], Nanoseconds(7));
  EXPECT_EQ(found.costs.instruction[5], Nanoseconds(3));
}

/// One rank: F0 keeps 100, its input part 60 more, and its weight part frees 160. Joined, the backward frees
/// the 100 of its forward. Split again, nothing tells that there was more.
TEST(Reorder, JoinsAndSplitsKeptMemory) {
  PricedProgram split;
  split.program.microbatches = 1;
  split.program.stages.resize(1);
  split.program.works.resize(1);
  split.program.instructions = {
      {Op::forward, 0, 0, 0}, {Op::backward_input, 0, 0, 0}, {Op::backward_weight, 0, 0, 0}};
  split.program.groups = {{0, 1, 0, 0, 0, 3}};
  split.costs.instruction.assign(3, Nanoseconds(10));
  split.costs.activation = {Bytes{100}, Bytes{60}, Bytes{160}};
  split.costs.workspace = {{5}, {70}, {20}};
  split.costs.model_state.resize(1);
  const StepOrder whole = {{{Op::forward, 0, 0}, {Op::backward, 0, 0}}};
  const PricedProgram joined = reorder(split.program, split.costs, whole);
  EXPECT_EQ(joined.costs.activation, (std::vector<Bytes>{{100}, {100}}));
  EXPECT_EQ(joined.costs.workspace, (std::vector<Bytes>{{5}, {70}}));
  EXPECT_EQ(simulate(joined.program, joined.costs, Detail::usage).groups[0].peak_memory, Bytes{170});
  const PricedProgram again = reorder(joined.program, joined.costs, step_order(split.program), {0, 0.5});
  EXPECT_EQ(again.costs.activation, (std::vector<Bytes>{{100}, {0}, {100}}));
  expect_equal(reorder(split.program, split.costs, step_order(split.program)), split);
}

TEST(Reorder, RejectsOrdersThatDoNotFit) {
  const PricedProgram priced = with_background_reduction();
  const StepOrder good = step_order(priced.program);
  const auto refused = [&](const std::function<void(StepOrder&)>& spoil, const std::string& text) {
    StepOrder order = good;
    spoil(order);
    try {
      reorder(priced.program, priced.costs, order);
      ADD_FAILURE() << "expected an error with '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  using O = StepOrder;
  refused([](O& o) { o.emplace_back(); }, "expected 1 ranks, found 2");
  refused([](O& o) { o[0].push_back(o[0][1]); }, "found backward of stage 0, microbatch 0 twice");
  refused([](O& o) { o[0].erase(o[0].begin()); }, "expected forward of stage 0, microbatch 0, found none");
  refused([](O& o) { o[0].pop_back(); }, "microbatch 1 is not completed");
  refused([](O& o) { o[0][0].microbatch = 2; }, "found forward of stage 0, microbatch 2");
  refused([](O& o) { o[0][0].stage = -1; }, "found forward of stage -1");
  refused([](O& o) { o[0][1].op = Op::backward_input; }, "found whole ones");
  refused([](O& o) { std::swap(o[0][0], o[0][1]); }, "out of order");
}

TEST(Reorder, RejectsKindsOfOrderThatDoNotFit) {
  Random random(1);
  const PricedProgram priced = make_program(random_pipeline(random, {OrderKind::zb_v, 2, 2, 3}));
  const auto refused = [&](const Program& program, OrderKind kind, const std::string& text) {
    try {
      order_of_kind(program, priced.costs, kind);
      ADD_FAILURE() << "expected an error with '" << text << "'";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  refused(priced.program, OrderKind::gpipe, "expected 1 for gpipe, found 2");
  Program other = priced.program;
  other.groups[0].stage = 2;
  refused(other, OrderKind::zb_v, "found 2 ranks with groups");
  other.groups[0].stage = 1;
  other.groups[1].stage = 0;
  refused(other, OrderKind::zb_v, "expected stage 1 on pipeline rank 1 for zb-v, found it on 0");
  other.groups[0].stage = 0;
  refused(other, OrderKind::zb_v, "the same order in all groups of pipeline rank 0");
}

}  // namespace reorder_test
}  // namespace dflop::testing
