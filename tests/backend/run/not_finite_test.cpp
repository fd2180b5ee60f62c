// A step whose loss or gradients are not finite changes nothing on any rank.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/backend/run/live_model.hpp"

namespace dflop {
namespace not_finite_test {

using testing::disaggregated_plan;
using testing::LiveRun;
using testing::uniform_plan;
using Kind = ParameterStore::Kind;

std::vector<Plan> plans() {
  Plan split = disaggregated_plan({1, 1, 1, {}}, {1, 2, 1, {}}, 4);
  split.order = OrderKind::zb_h1;
  std::vector<Plan> all = {uniform_plan(1, 1, 1, 2), uniform_plan(2, 2, 2, 3), split,
                           disaggregated_plan({1, 1, 3, {}}, {2, 1, 1, {}}, 3)};
  for (Plan& plan : all) plan.clip_gradients = true;
  return all;
}

LiveResult step(LiveRun& run, std::int64_t number) {
  StepOptions options;
  options.optimizer.step = number;
  options.clip_norm = std::numeric_limits<double>::infinity();  // no clipping
  return run.executor->step(run.iteration(), options);
}

/// Sets one value of a tensor.
void set(LiveRun& run, const std::string& name, double value) {
  WholeTensors weights = run.executor->read(Kind::weight);
  weights.at(name).values.at(0) = value;
  run.executor->write(Kind::weight, weights);
}

/// After a good step, one weight of the encoder's first stage or the head is set to infinity, so the loss is
/// not finite. The second step is not taken: all other values stay unchanged.
TEST(NotFinite, ChangesNoWeightsAndMoments) {
  for (const Plan& plan : plans()) {
    for (const char* name : {"encoder.layers.0.qkv", "llm.head"}) {
      SCOPED_TRACE(describe(plan) + " " + name);
      LiveRun run(plan, testing::live_samples(12, 5), DType::f32);
      EXPECT_TRUE(std::isfinite(step(run, 1).loss));
      set(run, name, std::numeric_limits<double>::infinity());
      std::map<Kind, WholeTensors> before;
      for (const Kind kind : {Kind::weight, Kind::moment1, Kind::moment2})
        before[kind] = run.executor->read(kind);
      const LiveResult bad = step(run, 2);
      EXPECT_FALSE(std::isfinite(bad.loss));
      for (const auto& [kind, tensors] : before) {
        const WholeTensors found = run.executor->read(kind);
        for (const auto& [tensor, values] : tensors) {
          EXPECT_EQ(found.at(tensor).values, values.values) << tensor;
        }
      }
    }
  }
}

/// An infinite max norm scales nothing: steps are bit-identical to steps of a plan without clipping.
TEST(NotFinite, WithoutALimitNothingIsClipped) {
  for (Plan plan : plans()) {
    SCOPED_TRACE(describe(plan));
    LiveRun found(plan, testing::live_samples(12, 5), DType::f32);
    plan.clip_gradients = false;
    LiveRun expected(plan, testing::live_samples(12, 5), DType::f32);
    for (int number = 1; number <= 3; ++number) {
      EXPECT_EQ(step(found, number).loss, expected.step(true, number).loss);
    }
  }
}

}  // namespace not_finite_test
}  // namespace dflop
