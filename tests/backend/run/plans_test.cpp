// Random plans, batches and assignments: loss, gradients and optimizer states equal the values of one rank
// with the whole batch in one microbatch, and repeated runs give the same bits.
#include <gtest/gtest.h>

#include "core/program/lowering.hpp"
#include "tests/backend/run/live_random.hpp"
#include "tests/rounds.hpp"

namespace dflop {
namespace plans_test {

using testing::families;
using testing::Family;
using testing::live_run;
using testing::LiveRun;
using testing::RandomCase;
using Kind = ParameterStore::Kind;

constexpr int kCases = testing::rounds(6);  // per schedule and layout

Plan one_rank() {
  Plan plan = testing::uniform_plan(1, 1, 1, 1);
  plan.encoder.layers = {4};
  plan.llm.layers = {6};
  return plan;
}

LiveRun reference_run(const RandomCase& c) {
  const Plan plan = one_rank();
  return {plan,
          testing::deep_live_model(),
          c.samples,
          testing::dealt(plan, c.samples.size()),
          plan_order(plan),
          DType::f64};
}

/// Compares differences relative to the tensor's norm. Tensors that are zero on both sides are equal.
void expect_close(const WholeTensors& found, const WholeTensors& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(found.count(name), 1U) << what << " " << name;
    if (found.at(name).values == tensor.values) continue;
    EXPECT_LT(testing::distance(found.at(name), tensor), tolerance) << what << " " << name;
  }
}

class LivePlans : public ::testing::TestWithParam<Family> {
 protected:
  template <typename Check>
  void for_each_case(int cases, const Check& check) {
    Random random(
        41, static_cast<std::uint64_t>(GetParam().order) * 8 + static_cast<std::uint64_t>(GetParam().layout));
    for (int i = 0; i < cases; ++i) {
      const RandomCase c = testing::random_case(random, GetParam().order, GetParam().layout);
      SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(c.plan) + ", " +
                   std::to_string(c.samples.size()) + " samples");
      ASSERT_NO_FATAL_FAILURE(check(c));
    }
  }
};

TEST_P(LivePlans, EqualOneRankWithTheWholeBatch) {
  for_each_case(kCases, [](const RandomCase& c) {
    LiveRun reference = reference_run(c);
    LiveRun run = live_run(c);
    verify(run.program);
    const double loss = reference.step(true).loss;
    EXPECT_NEAR(run.step(true).loss, loss, 1e-10 * loss);
    expect_close(run.executor->read(Kind::gradient), reference.executor->read(Kind::gradient), 1e-10,
                 "gradient");
    expect_close(run.executor->read(Kind::moment1), reference.executor->read(Kind::moment1), 1e-10,
                 "first moment");
    expect_close(run.executor->read(Kind::moment2), reference.executor->read(Kind::moment2), 1e-10,
                 "second moment");
    // The step divides by the root of the second moment, which amplifies the rounding of tiny gradients.
    expect_close(run.executor->read(Kind::weight), reference.executor->read(Kind::weight), 1e-7, "weight");
  });
}

/// Threads arrive in any order, but sums have a fixed order.
TEST_P(LivePlans, RepeatToTheBit) {
  for_each_case(testing::rounds(3), [](const RandomCase& c) {
    LiveRun one = live_run(c);
    LiveRun other = live_run(c);
    for (int step = 1; step <= 2; ++step) EXPECT_EQ(one.step(true, step).loss, other.step(true, step).loss);
    for (const Kind kind : {Kind::gradient, Kind::weight, Kind::moment1, Kind::moment2}) {
      const WholeTensors expected = other.executor->read(kind);
      for (const auto& [name, tensor] : one.executor->read(kind)) {
        EXPECT_EQ(tensor.values, expected.at(name).values) << name;
      }
    }
  });
}

/// Samples have sequences of the first encoder, the second, both or none. A microbatch may have work for only
/// one of them.
TEST_P(LivePlans, OfTwoEncodersEqualOneRankWithTheWholeBatch) {
  Random random(
      43, static_cast<std::uint64_t>(GetParam().order) * 8 + static_cast<std::uint64_t>(GetParam().layout));
  for (int i = 0; i < kCases; ++i) {
    RandomCase c = testing::random_case(random, GetParam().order, GetParam().layout);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(c.plan));
    c.samples = testing::random_heard_samples(random, static_cast<int>(c.samples.size()));
    const ModelSpec model = testing::deep_live_model(true);
    const Plan plan = one_rank();
    LiveRun reference(plan, model, c.samples, testing::dealt(plan, c.samples.size()), plan_order(plan),
                      DType::f64);
    LiveRun run(c.plan, model, c.samples, c.assignment, c.order, DType::f64);
    verify(run.program);
    const double loss = reference.step(true).loss;
    EXPECT_NEAR(run.step(true).loss, loss, 1e-10 * loss);
    const WholeTensors gradients = reference.executor->read(Kind::gradient);
    EXPECT_EQ(gradients.count("second.layers.1.qkv"), 1U);
    EXPECT_EQ(gradients.count("second.connector.0"), 1U);
    expect_close(run.executor->read(Kind::gradient), gradients, 1e-10, "gradient");
    expect_close(run.executor->read(Kind::weight), reference.executor->read(Kind::weight), 1e-7, "weight");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LivePlans, ::testing::ValuesIn(families()), testing::name_of);

}  // namespace plans_test
}  // namespace dflop
