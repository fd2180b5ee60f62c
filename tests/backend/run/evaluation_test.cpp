// An evaluation runs only the forwards of a step. It gives the step's loss and changes nothing.
#include <gtest/gtest.h>

#include <map>

#include "core/program/forwards.hpp"
#include "tests/backend/run/live_random.hpp"
#include "tests/rounds.hpp"

namespace dflop {
namespace evaluation_test {

using testing::families;
using testing::Family;
using testing::live_run;
using testing::LiveRun;
using testing::RandomCase;
using Kind = ParameterStore::Kind;

LiveResult evaluate(const LiveRun& run) {
  Iteration iteration = run.iteration();
  iteration.program = forwards_of(iteration.program);
  return run.executor->step(iteration, {});
}

std::map<Kind, WholeTensors> state(LiveRun& run) {
  std::map<Kind, WholeTensors> tensors;
  for (const Kind kind : {Kind::weight, Kind::gradient, Kind::moment1, Kind::moment2}) {
    tensors[kind] = run.executor->read(kind);
  }
  return tensors;
}

void expect_same_bits(const std::map<Kind, WholeTensors>& found,
                      const std::map<Kind, WholeTensors>& expected) {
  for (const auto& [kind, tensors] : expected) {
    for (const auto& [name, tensor] : tensors) {
      EXPECT_EQ(found.at(kind).at(name).values, tensor.values) << name;
    }
  }
}

class LiveEvaluation : public ::testing::TestWithParam<Family> {};

/// Evaluation does not change a bit of the run's losses, weights, gradients and moments.
TEST_P(LiveEvaluation, ChangesNothing) {
  Random random(
      43, static_cast<std::uint64_t>(GetParam().order) * 8 + static_cast<std::uint64_t>(GetParam().layout));
  for (int i = 0; i < testing::rounds(3); ++i) {
    const RandomCase c = testing::random_case(random, GetParam().order, GetParam().layout);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(c.plan));
    LiveRun plain = live_run(c);
    LiveRun evaluated = live_run(c);
    EXPECT_EQ(evaluate(evaluated).loss, plain.step(false).loss);
    for (int step = 1; step <= 2; ++step) {
      const double loss = plain.step(true, step).loss;
      EXPECT_EQ(evaluate(evaluated).loss, loss);
      EXPECT_EQ(evaluated.step(true, step).loss, loss);
      const auto before = state(evaluated);
      const LiveResult result = evaluate(evaluated);
      EXPECT_LT(result.loss, loss);  // the step has reduced the loss
      EXPECT_FALSE(result.gradient_norm);
      expect_same_bits(state(evaluated), before);
    }
    expect_same_bits(state(evaluated), state(plain));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LiveEvaluation, ::testing::ValuesIn(families()), testing::name_of);

/// Of eight microbatches, each rank holds the activations of only one. A step of GPipe holds all of them.
TEST(LiveEvaluationMemory, ActivationsAreFreedAfterUse) {
  Plan plan = testing::uniform_plan(1, 1, 1, 8);
  plan.order = OrderKind::gpipe;
  LiveRun run(plan, testing::live_samples(8, 5), DType::f32);
  const Bytes trained = run.step(true).timeline.groups[0].peak_activations;
  const Bytes evaluated = evaluate(run).timeline.groups[0].peak_activations;
  EXPECT_LT(2 * evaluated.count, trained.count);
}

}  // namespace evaluation_test
}  // namespace dflop
