#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace norm_test {

constexpr double kEpsilon = 1e-2;  // large enough to matter

/// The numbers of rows and columns.
class Norm : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  const int n = std::get<0>(GetParam());
  const int width = std::get<1>(GetParam());
  Random random{11};
  std::unique_ptr<Kernels> kernels = host<double>();
  Reals x = random_values(random, n, width, 2.0);
  Reals gamma = random_values(random, 1, width);
  Reals beta = random_values(random, 1, width);
  Reals dy = random_values(random, n, width);
  Reals added = random_values(random, n, width);
  Reals y = Reals(n, width, 9.0);
  Reals layer_statistics = Reals(n, 2, 9.0);
  Reals rms_statistics = Reals(n, 1, 9.0);

  double layer_loss() {
    kernels->layer_norm(y, layer_statistics, x, {}, gamma, beta, kEpsilon);
    return inner(y, dy);
  }
  double rms_loss() {
    kernels->rms_norm(y, rms_statistics, x, {}, gamma, kEpsilon);
    return inner(y, dy);
  }
};

TEST_P(Norm, LayerNormTakesOffTheMeanAndDividesByTheDeviation) {
  kernels->layer_norm(y, layer_statistics, x, {}, gamma, beta, kEpsilon);
  for (int r = 0; r < n; ++r) {
    double mean = 0.0;
    double variance = 0.0;
    for (int c = 0; c < width; ++c) mean += x(r, c) / width;
    for (int c = 0; c < width; ++c) variance += std::pow(x(r, c) - mean, 2) / width;
    const double rstd = 1.0 / std::sqrt(variance + kEpsilon);
    EXPECT_NEAR(layer_statistics(r, 0), mean, kExact);
    EXPECT_NEAR(layer_statistics(r, 1), rstd, kExact);
    for (int c = 0; c < width; ++c) {
      EXPECT_NEAR(y(r, c), (x(r, c) - mean) * rstd * gamma(0, c) + beta(0, c), kExact);
    }
  }
}

TEST_P(Norm, RmsNormDividesByTheRootOfTheMeanSquare) {
  kernels->rms_norm(y, rms_statistics, x, {}, gamma, kEpsilon);
  for (int r = 0; r < n; ++r) {
    double square = 0.0;
    for (int c = 0; c < width; ++c) square += x(r, c) * x(r, c) / width;
    const double rstd = 1.0 / std::sqrt(square + kEpsilon);
    EXPECT_NEAR(rms_statistics(r, 0), rstd, kExact);
    for (int c = 0; c < width; ++c) EXPECT_NEAR(y(r, c), x(r, c) * rstd * gamma(0, c), kExact);
  }
}

TEST_P(Norm, LayerNormBackwardIsTheDerivativePlusTheAddedGradient) {
  layer_loss();
  const Reals gamma_start = random_values(random, 1, width);
  const Reals beta_start = random_values(random, 1, width);
  Reals dx(n, width, 9.0);
  Reals dgamma = gamma_start;
  Reals dbeta = beta_start;
  kernels->layer_norm_backward(dx, dgamma, dbeta, dy, x, gamma, layer_statistics, added);
  const auto loss = [this] { return layer_loss(); };
  expect_close(dx, plus(added, numeric_gradient(x, loss)), kGradient, "dx");
  expect_close(dgamma, plus(gamma_start, numeric_gradient(gamma, loss)), kGradient, "dgamma");
  expect_close(dbeta, plus(beta_start, numeric_gradient(beta, loss)), kGradient, "dbeta");
}

TEST_P(Norm, RmsNormBackwardIsTheDerivativePlusTheAddedGradient) {
  rms_loss();
  const Reals gamma_start = random_values(random, 1, width);
  Reals dx(n, width, 9.0);
  Reals dgamma = gamma_start;
  kernels->rms_norm_backward(dx, dgamma, dy, x, gamma, rms_statistics, added);
  const auto loss = [this] { return rms_loss(); };
  expect_close(dx, plus(added, numeric_gradient(x, loss)), kGradient, "dx");
  expect_close(dgamma, plus(gamma_start, numeric_gradient(gamma, loss)), kGradient, "dgamma");
}

TEST_P(Norm, BackwardOmitsUnrequestedGradients) {
  layer_loss();
  rms_loss();
  const Matrix no_dx{nullptr, n, width};
  Reals dx(n, width);
  Reals dgamma(1, width);
  Reals dbeta(1, width);
  kernels->layer_norm_backward(dx, dgamma, dbeta, dy, x, gamma, layer_statistics, {});
  Reals alone(n, width);
  kernels->layer_norm_backward(alone, Sums(), Sums(), dy, x, gamma, layer_statistics, {});
  EXPECT_EQ(alone.data, dx.data);
  Reals only_dgamma(1, width);
  kernels->layer_norm_backward(no_dx, only_dgamma, Sums(), dy, x, gamma, layer_statistics, added);
  EXPECT_EQ(only_dgamma.data, dgamma.data);
  Reals only_dbeta(1, width);
  kernels->layer_norm_backward(no_dx, Sums(), only_dbeta, dy, x, gamma, layer_statistics, {});
  EXPECT_EQ(only_dbeta.data, dbeta.data);

  Reals rms_dgamma(1, width);
  kernels->rms_norm_backward(dx, rms_dgamma, dy, x, gamma, rms_statistics, {});
  kernels->rms_norm_backward(alone, Sums(), dy, x, gamma, rms_statistics, {});
  EXPECT_EQ(alone.data, dx.data);
  Reals only_rms(1, width);
  kernels->rms_norm_backward(no_dx, only_rms, dy, x, gamma, rms_statistics, added);
  EXPECT_EQ(only_rms.data, rms_dgamma.data);
}

/// Returns the sum, the results and the gradients of both norms. If `fused`, the norms add; else `add` does
/// so before the forward and after the backward.
template <typename T>
std::vector<std::vector<T>> sums_and_norms(int n, int width, HostTarget target, bool fused) {
  Random random{17};
  const auto kernels = host<T>(target);
  const auto x = random_values<T>(random, n, width, 2.0), added = random_values<T>(random, n, width);
  const auto dy = random_values<T>(random, n, width), gamma = random_values<T>(random, 1, width);
  std::vector<std::vector<T>> all;
  for (const bool centered : {true, false}) {
    Values<T> sum = x, y(n, width), statistics(n, centered ? 2 : 1), dx(n, width), dgamma(1, width);
    const ConstMatrix first = fused ? ConstMatrix(added) : ConstMatrix();
    if (!fused) kernels->add(sum, added);
    if (centered) {
      kernels->layer_norm(y, statistics, sum, first, gamma, gamma, kEpsilon);
      kernels->layer_norm_backward(dx, dgamma, {}, dy, sum, gamma, statistics, first);
    } else {
      kernels->rms_norm(y, statistics, sum, first, gamma, kEpsilon);
      kernels->rms_norm_backward(dx, dgamma, dy, sum, gamma, statistics, first);
    }
    if (!fused) kernels->add(dx, added);
    for (const auto* values : {&sum, &y, &statistics, &dx, &dgamma}) all.push_back(values->data);
  }
  return all;
}

TEST_P(Norm, AddsBitIdenticallyToAdd) {
  for (const auto& [target, name] : kNames<HostTarget>) {
    if (!has_host_target(target)) continue;
    EXPECT_EQ(sums_and_norms<float>(n, width, target, true), sums_and_norms<float>(n, width, target, false))
        << name;
    EXPECT_EQ(sums_and_norms<double>(n, width, target, true), sums_and_norms<double>(n, width, target, false))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         ::testing::Values(std::tuple(0, 4), std::tuple(1, 1), std::tuple(1, 6),
                                           std::tuple(5, 3), std::tuple(4, 33)));

}  // namespace norm_test
}  // namespace dflop::testing
