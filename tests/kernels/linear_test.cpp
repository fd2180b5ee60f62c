#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace linear_test {

/// The numbers of rows, inputs and outputs.
class Linear : public ::testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  const int n = std::get<0>(GetParam());
  const int in = std::get<1>(GetParam());
  const int out = std::get<2>(GetParam());
  Random random{7};
  std::unique_ptr<Kernels> kernels = host<double>();
  Reals x = random_values(random, n, in);
  Reals weight = random_values(random, out, in);
  Reals bias = random_values(random, 1, out);
  Reals dy = random_values(random, n, out);

  double loss() {
    Reals y(n, out);
    kernels->linear(y, x, weight, bias);
    return inner(y, dy);
  }
};

TEST_P(Linear, IsTheSumOfProductsAndTheBias) {
  Reals expected(n, out);
  Reals without_bias(n, out);
  for (int r = 0; r < n; ++r) {
    for (int o = 0; o < out; ++o) {
      for (int i = 0; i < in; ++i) without_bias(r, o) += x(r, i) * weight(o, i);
      expected(r, o) = without_bias(r, o) + bias(0, o);
    }
  }
  Reals y(n, out, 9.0);  // previous content is overwritten
  kernels->linear(y, x, weight, bias);
  expect_close(y, expected, kExact);
  kernels->linear(y, x, weight, ConstMatrix());
  expect_close(y, without_bias, kExact);
}

TEST_P(Linear, BackwardIsTheDerivative) {
  Reals dx(n, in, 9.0);
  kernels->linear_backward_input(dx, dy, weight);
  expect_close(dx, numeric_gradient(x, [this] { return loss(); }), kGradient, "dx");

  const Reals weight_start = random_values(random, out, in);
  const Reals bias_start = random_values(random, 1, out);
  Reals dweight = weight_start;
  Reals dbias = bias_start;
  kernels->linear_backward_weight(dweight, dbias, dy, x, Beta::one);
  const Reals weight_gradient = numeric_gradient(weight, [this] { return loss(); });
  expect_close(dweight, plus(weight_start, weight_gradient), kGradient, "dweight");
  const Reals bias_gradient = numeric_gradient(bias, [this] { return loss(); });
  expect_close(dbias, plus(bias_start, bias_gradient), kGradient, "dbias");

  Reals again = weight_start;
  kernels->linear_backward_weight(again, Sums(), dy, x, Beta::one);
  EXPECT_EQ(again.data, dweight.data);

  // With beta 0, the previous content is not read. The result is the same as when adding to zeros.
  Reals added(out, in, 0.0);
  kernels->linear_backward_weight(added, Sums(), dy, x, Beta::one);
  Reals set(out, in, std::numeric_limits<double>::quiet_NaN());
  kernels->linear_backward_weight(set, Sums(), dy, x, Beta::zero);
  EXPECT_EQ(set.data, added.data);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear,
                         ::testing::Values(std::tuple(0, 3, 2), std::tuple(1, 5, 3), std::tuple(7, 1, 1),
                                           std::tuple(6, 4, 9), std::tuple(33, 17, 12)));

}  // namespace linear_test
}  // namespace dflop::testing
