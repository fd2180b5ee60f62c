// Training in bf16: activations and weights are rounded, and the optimizer updates masters in f32.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/dtype.hpp"
#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace bf16_test {

using testing::disaggregated_plan;
using testing::live_samples;
using testing::LiveRun;
using testing::uniform_plan;
using Kind = ParameterStore::Kind;

std::vector<Plan> plans() {
  Plan shards = disaggregated_plan({2, 1, 1, {}}, {2, 2, 1, {}}, 3);
  shards.sequence_parallel = true;
  return {uniform_plan(1, 1, 2, 2), uniform_plan(2, 1, 1, 2),
          disaggregated_plan({1, 1, 2, {}}, {1, 2, 1, {}}, 3), shards};
}

bool is_rounded(double value) {
  return value == to_float(to_bfloat16(static_cast<float>(value)));
}

/// Each value has a relative rounding error of up to 2^-9, about a hundred times from the pixels to their
/// gradients. A wrong sum would cause an error as large as the gradients.
TEST(LiveBf16, GradientsEqualF32ExceptForRounding) {
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun reference(uniform_plan(1, 1, 1, 1), samples, DType::f32);
  const double loss = reference.step(false).loss;
  const WholeTensors expected = reference.executor->read(Kind::gradient);
  for (const Plan& plan : plans()) {
    LiveRun run(plan, samples, DType::bf16);
    EXPECT_NEAR(run.step(false).loss, loss, 0.01 * loss);
    const WholeTensors found = run.executor->read(Kind::gradient);
    for (const auto& [name, tensor] : expected) {
      EXPECT_LT(testing::distance(found.at(name), tensor), 0.15) << name;
    }
  }
}

/// Masters start as the unrounded f32 weights, and follow the weights of an f32 run.
TEST(LiveBf16, MastersEqualTheWeightsOfF32) {
  const std::vector<Sample> samples = live_samples(12, 5);
  for (const Plan& plan : plans()) {
    LiveRun reference(plan, samples, DType::f32);
    LiveRun run(plan, samples, DType::bf16);
    const WholeTensors first = run.executor->read(Kind::weight);
    for (const auto& [name, tensor] : reference.executor->read(Kind::weight)) {
      EXPECT_EQ(first.at(name).values, tensor.values) << name;
    }
    for (int step = 1; step <= 3; ++step) {
      reference.step(true, step);
      run.step(true, step);
    }
    const WholeTensors masters = run.executor->read(Kind::weight);
    for (const auto& [name, tensor] : reference.executor->read(Kind::weight)) {
      // Vectors start at 0 or 1, and the sign of a tiny gradient decides a whole step.
      if (tensor.rows > 1 && tensor.columns > 1) {
        EXPECT_LT(testing::distance(masters.at(name), tensor), 0.01) << name;
      }
    }
    const std::vector<double>& values = masters.at("llm.head").values;
    EXPECT_FALSE(std::all_of(values.begin(), values.end(), is_rounded));
  }
}

/// Masters and moments are the complete state. A run of another plan that loads them has the same bits, and
/// its weights are the rounded masters, as its loss shows.
TEST(LiveBf16, AnotherPlanResumesFromMasters) {
  const std::vector<Sample> samples = live_samples(12, 5);
  LiveRun run(uniform_plan(1, 1, 2, 2), samples, DType::bf16);
  for (int step = 1; step <= 2; ++step) run.step(true, step);
  LiveRun next(disaggregated_plan({1, 1, 1, {}}, {1, 2, 1, {}}, 3), samples, DType::bf16);
  for (const Kind kind : {Kind::weight, Kind::moment1, Kind::moment2}) {
    const WholeTensors state = run.executor->read(kind);
    next.executor->write(kind, state);
    for (const auto& [name, tensor] : next.executor->read(kind)) {
      EXPECT_EQ(tensor.values, state.at(name).values) << name;
    }
  }
  const double loss = run.step(true, 3).loss;
  EXPECT_NEAR(next.step(true, 3).loss, loss, 0.005 * loss);
  const double after = run.step(false).loss;
  EXPECT_LT(after, loss);
  EXPECT_NEAR(next.step(false).loss, after, 0.01 * after);
}

/// Two bytes per weight, four per gradient, and twelve for master and moments of the rank's half. Parameters
/// and shards start at multiples of eight values.
TEST(LiveBf16, CountsItsBytes) {
  LiveRun run(uniform_plan(1, 1, 2, 2), live_samples(12, 5), DType::bf16);
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : run.executor->read(Kind::weight))
    parameters += round_up(tensor.rows * tensor.columns, 8);
  parameters = round_up(parameters, 16);
  const ModelState state = run.step(false).timeline.groups.at(0).model_state;
  EXPECT_EQ(state.parameters.count, 2 * parameters);
  EXPECT_EQ(state.gradients.count, 4 * parameters);
  EXPECT_EQ(state.optimizer.count, 12 * parameters / 2);
}

}  // namespace bf16_test
}  // namespace dflop
