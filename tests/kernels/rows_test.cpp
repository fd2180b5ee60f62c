#include <gtest/gtest.h>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace rows_test {

const Reals kThree(3, 2, {1, 2, 3, 4, 5, 6});

// Row 0 is half of row 0 and a quarter of row 2, row 1 nothing, row 2 row 1 twice with 1 and -3.
TEST(Rows, MixTakesWeightedSums) {
  const Ints begin = {0, 2, 2}, end = {2, 2, 4}, index = {0, 2, 1, 1};
  const Reals weights(1, 4, {0.5, 0.25, 1, -3});
  Reals y(3, 2, 9.0);
  host<double>()->mix_rows(y, kThree, indices(begin), indices(end), indices(index), weights);
  EXPECT_EQ(y.data, (std::vector<double>{0.5 + 1.25, 1 + 1.5, 0, 0, -6, -8}));
}

TEST(Rows, ScaleColumnsAndTheirProducts) {
  const auto kernels = host<double>();
  Reals y(3, 2, 9.0);
  kernels->scale_columns(y, kThree, Reals(1, 2, {2, -1}));
  EXPECT_EQ(y.data, (std::vector<double>{2, -2, 6, -4, 10, -6}));
  Reals sum(1, 2, {100, 1000});  // is added to: 1 * 2 + 3 * 6 + 5 * 10, and -(2 * 2 + 4 * 4 + 6 * 6)
  kernels->column_products(sum, kThree, y);
  EXPECT_EQ(sum.data, (std::vector<double>{170, 944}));
}

// In f32 a sum of 2^24 ones and one more would lose that one; the sum of what is above it is kept in double.
TEST(Rows, SumOfSquaresAddsInDouble) {
  Reals sum(1, 1, {5});
  host<double>()->sum_of_squares(sum, kThree);  // 1 + 4 + 9 + 16 + 25 + 36
  EXPECT_EQ(sum.data, (std::vector<double>{96}));
  Values<float> many(1, (1 << 24) + 512, 1.0F), all(1, 1);
  host<float>()->sum_of_squares(all, many);
  EXPECT_EQ(all.data.front(), static_cast<float>((1 << 24) + 512));
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
