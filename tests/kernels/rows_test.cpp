#include <gtest/gtest.h>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace rows_test {

const Reals kThree(3, 2, {1, 2, 3, 4, 5, 6});

TEST(Rows, PoolTakesMeansOfWindows) {
  const Ints begin = {0, 1, 0};
  const Ints end = {1, 3, 3};
  Reals y(3, 2, 9.0);
  host<double>()->pool_rows(y, kThree, indices(begin), indices(end));
  EXPECT_EQ(y.data, (std::vector<double>{1, 2, 4, 5, 3, 4}));
}

// Row 1 is in two windows, of two rows (8 / 2) and of one (3); row 3 is in none.
TEST(Rows, PoolBackwardSharesGradientsAmongTheRowsOfAWindow) {
  const Reals dy(2, 1, {8, 3});
  const Ints begin = {0, 1};
  const Ints end = {2, 2};
  Reals dx(3, 1, 9.0);
  host<double>()->pool_rows_backward(dx, dy, indices(begin), indices(end));
  EXPECT_EQ(dx.data, (std::vector<double>{4, 7, 0}));
}

TEST(Rows, PoolBackwardIsTheDerivative) {
  const auto kernels = host<double>();
  Random random(59);
  Reals x = random_values(random, 10, 3);
  const Reals dy = random_values(random, 6, 3);
  Ints begin = random_ints(random, 6, 10);
  Ints end;
  for (const std::int32_t first : begin) {
    end.push_back(first + 1 +
                  static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(10 - first))));
  }
  Reals dx(10, 3);
  kernels->pool_rows_backward(dx, dy, indices(begin), indices(end));
  const auto loss = [&] {
    Reals y(6, 3);
    kernels->pool_rows(y, x, indices(begin), indices(end));
    return inner(y, dy);
  };
  expect_close(dx, numeric_gradient(x, loss), kGradient);
}

TEST(Rows, GatherTakesAndScatterAddsRepeatedRows) {
  const auto kernels = host<double>();
  const Ints index = {2, 0, 2};
  Reals y(3, 2, 9.0);
  kernels->gather_rows(y, kThree, indices(index));
  EXPECT_EQ(y.data, (std::vector<double>{5, 6, 1, 2, 5, 6}));
  Reals sum(4, 2, 10.0);  // row 2 gets rows 0 and 2
  kernels->scatter_add_rows(sum, kThree, indices(index));
  EXPECT_EQ(sum.data, (std::vector<double>{13, 14, 10, 10, 16, 18, 10, 10}));
}

TEST(Rows, AddZeroRoundAndScale) {
  const auto kernels = host<double>();
  Reals y(3, 2, 1.0);
  kernels->add(y, kThree);
  EXPECT_EQ(y.data, (std::vector<double>{2, 3, 4, 5, 6, 7}));
  kernels->scale(y, -0.5);
  EXPECT_EQ(y.data, (std::vector<double>{-1, -1.5, -2, -2.5, -3, -3.5}));
  kernels->round(y, kThree);
  EXPECT_EQ(y.data, kThree.data);
  kernels->zero(static_cast<Matrix>(y));
  EXPECT_EQ(y.data, std::vector<double>(6, 0.0));
  y = kThree;
  kernels->zero(static_cast<Sums>(y));
  EXPECT_EQ(y.data, std::vector<double>(6, 0.0));
}

}  // namespace rows_test
}  // namespace dflop::testing
