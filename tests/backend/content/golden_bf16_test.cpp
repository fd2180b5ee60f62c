// Losses and gradients of real architectures in bf16, with masters in f32, equal transformers' except for
// rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tests/backend/content/golden_run.hpp"

namespace dflop {
namespace golden_bf16_test {

using testing::GoldenModel;
using testing::GoldenRun;
using testing::GoldenWay;
using testing::GradientDistance;

/// Max relative rounding error of values with 8 bits of precision. For 24 bits it is 2^-24.
constexpr double kUnit = 0x1p-8;
constexpr double kUnits = 0x1p16;  // of bf16, in units of f32

class GoldenBf16 : public ::testing::TestWithParam<std::string> {};

/// To first order, rounding errors of each tensor are proportional to the rounding unit. In bf16 all stored
/// values are rounded, also weights, and sums within an operation are computed in f32; in f32 sums are
/// rounded, too. So the error in bf16 is about 2^16 times the error in f32, measured against the golden
/// gradients in f64, and not much less, as both pass through the same operations. Both are sums of random
/// roundings. In the smallest tensors, which have 16 values, the factor varies: the largest was 1.57 times
/// 2^16, where the test allows twice that unit. The geometric mean over all tensors must not exceed 2^16; the
/// largest was 0.61 times that.
/// The loss is a mean of logarithms of the softmax, which have no larger errors than the logits: one unit
/// relative to their size.
TEST_P(GoldenBf16, GradientsEqualTransformersExceptForRounding) {
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
    double logarithms = 0;
    int tensors = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_LE(found[i].norm, 2 * kUnits * expected[i].norm) << found[i].name;
      EXPECT_GE(found[i].norm, kUnits / 16 * expected[i].norm) << found[i].name;
      if (expected[i].norm == 0) continue;
      logarithms += std::log(found[i].norm / expected[i].norm);
      ++tensors;
    }
    EXPECT_LE(logarithms / tensors, std::log(kUnits));
  }
}

/// Max error of gradients relative to their norms. In the test above it is 0.045.
constexpr double kGradients = 0.05;

/// Runs the golden AdamW steps. The error of each loss is one relative unit, plus the improvement by the
/// previous steps times the error of their gradients. Without masters in f32, steps smaller than a weight's
/// unit would be lost.
TEST_P(GoldenBf16, LossesOfAdamWEqualTransformersExceptForRounding) {
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
