#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <tuple>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace activation_test {

/// Rows and columns of the output. 300 columns are more than a chunk.
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

TEST_P(Activation, GeluQuickIsASigmoidsProduct) {
  const Reals x = random_values(random, n, width, 6.0);
  Reals expected = x;
  for (double& v : expected.data) v = v / (1.0 + std::exp(-1.702 * v));
  kernels->gelu_quick(y, x);
  expect_close(y, expected, kExact);
}

TEST_P(Activation, GeluQuickBackwardIsTheDerivative) {
  Reals x = random_values(random, n, width, 4.0);
  Reals dx(n, width, 9.0);
  kernels->gelu_quick_backward(dx, dy, x);
  const auto loss = [&] {
    kernels->gelu_quick(y, x);
    return inner(y, dy);
  };
  expect_close(dx, numeric_gradient(x, loss), kGradient);
}

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

// Far from zero, both are 0 or the identity, without an overflow in between.
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
  kernels->gelu_erf(y, x);
  EXPECT_NEAR(y(0, 0), T(0), 1e-30);
  EXPECT_EQ(y(0, 1), T(1000));
  kernels->gelu_erf_backward(dx, Values<T>(1, 2, T(1)), x);
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

// Far below zero, 1 + erf has no correct digits, and the rounding of x^2 is amplified x^2 / 2 times. The
// expected values are computed with erfc and 64 bits, so its argument is rounded 2^11 times finer than in
// f64.
struct Exact {
  long double value;
  long double slope;
  long double size_of_slope;  ///< sum of the sizes of its two terms, which cancel near -0.75
};

Exact exact_gelu_erf(long double x) {
  const long double below = std::erfc(-x / std::numbers::sqrt2_v<long double>) / 2;
  const long double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<long double>);
  return {x * below, below + x * density, below + std::abs(x * density)};
}

/// Compares on [-last, 8] with the given relative error on every target.
template <typename T>
void expect_digits(double last, long double relative) {
  Random random(37);
  Values<T> x(1, 4000), y(1, 4000), dx(1, 4000);
  for (T& value : x.data) value = static_cast<T>(-last + (last + 8.0) * random.uniform());
  for (const auto& [target, name] : kNames<HostTarget>) {
    if (!has_host_target(target)) continue;
    const auto kernels = host<T>(target);
    kernels->gelu_erf(y, x);
    kernels->gelu_erf_backward(dx, Values<T>(1, 4000, T(1)), x);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      const Exact exact = exact_gelu_erf(x.data[i]);
      EXPECT_LE(std::abs(y.data[i] - exact.value), relative * std::abs(exact.value))
          << name << " at " << x.data[i];
      EXPECT_LE(std::abs(dx.data[i] - exact.slope), relative * exact.size_of_slope)
          << name << ", the derivative at " << x.data[i];
    }
  }
}

// f32 values are normal above 1.2e-38, which is reached at -12.9, f64 values above 2.2e-308, at -37.5. A unit
// in the last place of f32 is at most 2^-23 of a number.
TEST(GeluErf, LosesNoDigitsFarBelowZero) {
  expect_digits<float>(12.9, 0x1p-23L);
  expect_digits<double>(37.4, 1e-14L);
}

// bf16 has 8 bits: the nearest number is at most a relative 2^-8 away, in addition to the rounding to f32
// before.
TEST(GeluErf, InBf16IsTheNearestNumber) {
  const auto kernels = make_host_kernels(DType::bf16);
  Random random(41);
  for (int i = 0; i < 500; ++i) {
    BFloat16 x = to_bfloat16(static_cast<float>(-12.5 + 20.0 * random.uniform()));
    BFloat16 y{};
    kernels->gelu_erf({&y, 1, 1}, {&x, 1, 1});
    const long double expected = exact_gelu_erf(to_float(x)).value;
    EXPECT_LE(std::abs(to_float(y) - expected), 0x1.001p-8L * std::abs(expected)) << to_float(x);
  }
}

TEST(GeluErf, PropagatesNan) {
  const Reals x(1, 5, std::nan(""));
  Reals y(1, 5), dx(1, 5);
  for (const auto& [target, name] : kNames<HostTarget>) {
    if (!has_host_target(target)) continue;
    host<double>(target)->gelu_erf(y, x);
    host<double>(target)->gelu_erf_backward(dx, Reals(1, 5, 1.0), x);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(std::isnan(y(0, i)) && std::isnan(dx(0, i))) << name;
  }
}

}  // namespace activation_test
}  // namespace dflop::testing
