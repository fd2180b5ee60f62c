#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <tuple>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace activation_test {

/// Rows and columns of the output; 300 columns are more than a chunk.
class Activation : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const int n = std::get<0>(GetParam());
  const int width = std::get<1>(GetParam());
  Random random{13};
  std::unique_ptr<Kernels> kernels = host<double>();
  Reals dy = random_values(random, n, width);
  Reals y = Reals(n, width, 9.0);
};

TEST_P(Activation, GeluIsTheTanhForm) {
  const Reals x = random_values(random, n, width, 6.0);
  Reals expected = x;
  for (double& v : expected.data) {
    v = v / 2.0 * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
  }
  kernels->gelu(y, x);
  expect_close(y, expected, kExact);
}

TEST_P(Activation, GeluBackwardIsTheDerivative) {
  Reals x = random_values(random, n, width, 4.0);
  Reals dx(n, width, 9.0);
  kernels->gelu_backward(dx, dy, x);
  const auto loss = [&] {
    kernels->gelu(y, x);
    return inner(y, dy);
  };
  expect_close(dx, numeric_gradient(x, loss), kGradient);
}

// erfc keeps its digits where 1 + erf loses them: far below zero.
TEST_P(Activation, GeluErfIsTheExactForm) {
  const Reals x = random_values(random, n, width, 6.0);
  Reals expected = x;
  for (double& v : expected.data) v = v * std::erfc(-v / std::numbers::sqrt2) / 2.0;
  kernels->gelu_erf(y, x);
  expect_close(y, expected, kExact);
}

TEST_P(Activation, GeluErfBackwardIsTheDerivative) {
  Reals x = random_values(random, n, width, 4.0);
  Reals dx(n, width, 9.0);
  kernels->gelu_erf_backward(dx, dy, x);
  const auto loss = [&] {
    kernels->gelu_erf(y, x);
    return inner(y, dy);
  };
  expect_close(dx, numeric_gradient(x, loss), kGradient);
}

TEST_P(Activation, SwigluGatesTheSecondHalfByTheFirst) {
  const Reals x = random_values(random, n, 2 * width, 6.0);
  kernels->swiglu(y, x);
  for (int r = 0; r < n; ++r) {
    for (int c = 0; c < width; ++c) {
      const double gate = x(r, c);
      EXPECT_NEAR(y(r, c), gate / (1.0 + std::exp(-gate)) * x(r, width + c), 1e-11);
    }
  }
}

TEST_P(Activation, SwigluBackwardIsTheDerivative) {
  Reals x = random_values(random, n, 2 * width, 4.0);
  Reals dx(n, 2 * width, 9.0);
  kernels->swiglu_backward(dx, dy, x);
  const auto loss = [&] {
    kernels->swiglu(y, x);
    return inner(y, dy);
  };
  expect_close(dx, numeric_gradient(x, loss), kGradient);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Activation,
                         ::testing::Values(std::tuple(0, 4), std::tuple(1, 1), std::tuple(5, 7),
                                           std::tuple(2, 300)));

// Far from zero both are 0 or the identity; nothing overflows on the way.
template <typename T>
void expect_limits() {
  const auto kernels = host<T>();
  const Values<T> x(1, 2, {T(-1000), T(1000)});
  Values<T> y(1, 2);
  kernels->gelu(y, x);
  EXPECT_NEAR(y(0, 0), T(0), 1e-30);
  EXPECT_EQ(y(0, 1), T(1000));
  Values<T> dx(1, 2);
  kernels->gelu_backward(dx, Values<T>(1, 2, T(1)), x);
  EXPECT_NEAR(dx(0, 0), T(0), 1e-30);
  EXPECT_EQ(dx(0, 1), T(1));
  Values<T> gated(2, 1);
  kernels->swiglu(gated, Values<T>(2, 2, {T(-1000), T(3), T(1000), T(3)}));
  EXPECT_NEAR(gated(0, 0), T(0), 1e-30);
  EXPECT_EQ(gated(1, 0), T(3000));
}

TEST(ActivationLimits, AreReachedWithoutOverflow) {
  expect_limits<float>();
  expect_limits<double>();
}

}  // namespace activation_test
}  // namespace dflop::testing
