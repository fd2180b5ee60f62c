// Losses and gradients of real architectures in bf16, with masters in f32, are those of transformers to
// rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "tests/backend/content/golden_run.hpp"

namespace dflop {
namespace golden_bf16_test {

using testing::GoldenModel;
using testing::GoldenRun;
using testing::GoldenWay;
using testing::GradientDistance;

/// Values of 8 bits of precision are rounded by at most so much of themselves, those of 24 bits by 2^-24.
constexpr double kUnit = 0x1p-8;
constexpr double kCoarser = 0x1.1p16;

class GoldenBf16 : public ::testing::TestWithParam<std::string> {};

/// Errors of rounding, to the first order, are proportional to the unit, tensor by tensor. In bf16 all that
/// is stored is rounded, weights too, and sums within an operation are of f32; in f32 sums are rounded, too.
/// So the error in bf16 is about 2^16 times the error in f32, which the golden gradients in f64 show, and not
/// much below it: each passes through the same operations. Both are sums of random roundings, so a sixteenth
/// more is allowed; the largest of all tensors was 1.016 times 2^16. The loss is a mean of logarithms of the
/// softmax, which are off by no more than logits are, a unit of themselves.
TEST_P(GoldenBf16, GradientsAreTheLibrarysToRounding) {
  const GoldenModel model = testing::read_golden_model(GetParam());
  StepOptions options;
  options.update = false;
  for (const GoldenWay& way : testing::golden_ways(model.spec)) {
    SCOPED_TRACE(way.name);
    GoldenRun fine(model, way.plan, DType::f32);
    fine.executor->step(fine.iteration, options);
    GoldenRun coarse(model, way.plan, DType::bf16);
    EXPECT_NEAR(coarse.executor->step(coarse.iteration, options).loss, model.loss, kUnit * model.loss);
    const std::vector<GradientDistance> expected = gradient_distances(model, *fine.executor);
    const std::vector<GradientDistance> found = gradient_distances(model, *coarse.executor);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_LE(found[i].norm, kCoarser * expected[i].norm) << found[i].name;
      EXPECT_GE(found[i].norm, kCoarser / 16 * expected[i].norm) << found[i].name;
    }
  }
}

/// This is how far gradients are off at most, over their norms: those of the test above, 0.045.
constexpr double kGradients = 0.05;

/// Runs the golden AdamW steps. Each loss is off by a unit of itself, and by what the steps before it have
/// gained times how far their gradients were off. Without masters in f32 steps of less than a weight's unit
/// would be lost.
TEST_P(GoldenBf16, LossesOfAdamWAreTheLibrarysToRounding) {
  const GoldenModel model = testing::read_golden_model(GetParam());
  for (GoldenWay way : testing::golden_ways(model.spec)) {
    SCOPED_TRACE(way.name);
    way.plan.clip_gradients = true;
    way.plan.zero1 = true;
    GoldenRun run(model, way.plan, DType::bf16);
    for (std::size_t step = 0; step < testing::golden_steps(model); ++step) {
      const double gained = model.losses.front() - model.losses[step];
      EXPECT_NEAR(run.adamw_step(model, step).loss, model.losses[step],
                  kUnit * model.losses[step] + kGradients * gained)
          << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenBf16, ::testing::ValuesIn(testing::golden_models()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace golden_bf16_test
}  // namespace dflop
