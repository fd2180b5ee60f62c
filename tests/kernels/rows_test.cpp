#include <gtest/gtest.h>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace rows_test {

const Reals kThree(3, 2, {1, 2, 3, 4, 5, 6});

// Row 0 is half of row 0 plus a quarter of row 2, row 1 is empty, and row 2 is row 1 twice, with weights 1
// and -3.
TEST(Rows, MixTakesWeightedSums) {
  const Ints begin = {0, 2, 2}, end = {2, 2, 4}, index = {0, 2, 1, 1};
  const Reals weights(1, 4, {0.5, 0.25, 1, -3});
  Reals y(3, 2, 9.0);
  host<double>()->mix_rows(y, kThree, indices(begin), indices(end), indices(index), weights);
  EXPECT_EQ(y.data, (std::vector<double>{0.5 + 1.25, 1 + 1.5, 0, 0, -6, -8}));
}

/// Lists of weighted rows for mix_rows: row i of the result sums the list entries [begin[i], end[i]).
struct Mix {
  Ints begin, end, index;
  Reals weights;

  Reals of(const Kernels& kernels, const Reals& x) const {
    Reals y(std::ssize(begin), x.columns, 9.0);
    kernels.mix_rows(y, x, indices(begin), indices(end), indices(index), weights);
    return y;
  }
};

/// Returns random lists with empty windows and with rows that repeat.
Mix random_mix(Random& random, int rows, int from_rows) {
  Mix mix;
  for (int i = 0; i < rows; ++i) {
    mix.begin.push_back(static_cast<std::int32_t>(mix.index.size()));
    for (const auto row : random_ints(random, static_cast<std::int64_t>(random.below(6)), from_rows)) {
      mix.index.push_back(row);
    }
    mix.end.push_back(static_cast<std::int32_t>(mix.index.size()));
  }
  mix.weights = random_values(random, 1, std::ssize(mix.index));
  return mix;
}

/// Returns the transposed lists: a row of x gets the weighted sum of the rows of y that contain it.
Mix transposed(const Mix& mix, int from_rows) {
  Mix back;
  std::vector<double> weights;
  for (int row = 0; row < from_rows; ++row) {
    back.begin.push_back(static_cast<std::int32_t>(back.index.size()));
    for (std::size_t i = 0; i < mix.begin.size(); ++i) {
      for (std::int32_t tap = mix.begin[i]; tap < mix.end[i]; ++tap) {
        if (mix.index[static_cast<std::size_t>(tap)] != row) continue;
        back.index.push_back(static_cast<std::int32_t>(i));
        weights.push_back(mix.weights(0, tap));
      }
    }
    back.end.push_back(static_cast<std::int32_t>(back.index.size()));
  }
  back.weights = Reals(1, std::ssize(weights), weights);
  return back;
}

TEST(Rows, TheGradientOfMixIsTheMixOfTransposedLists) {
  const auto kernels = host<double>();
  Random random(59);
  for (int round = 0; round < 20; ++round) {
    const int from_rows = 1 + static_cast<int>(random.below(8));
    const int rows = static_cast<int>(random.below(9));
    const Mix mix = random_mix(random, rows, from_rows);
    Reals x = random_values(random, from_rows, 3);
    const Reals dy = random_values(random, rows, 3);
    const auto loss = [&] { return inner(mix.of(*kernels, x), dy); };
    expect_close(transposed(mix, from_rows).of(*kernels, dy), numeric_gradient(x, loss), kGradient);
  }
}

TEST(Rows, ScaleColumnsAndTheirProducts) {
  const auto kernels = host<double>();
  Reals y(3, 2, 9.0);
  kernels->scale_columns(y, kThree, Reals(1, 2, {2, -1}));
  EXPECT_EQ(y.data, (std::vector<double>{2, -2, 6, -4, 10, -6}));
  Reals sum(1, 2, {100, 1000});  // adds 1 * 2 + 3 * 6 + 5 * 10, and -(2 * 2 + 4 * 4 + 6 * 6)
  kernels->column_products(sum, kThree, y);
  EXPECT_EQ(sum.data, (std::vector<double>{170, 944}));
}

// For y = x * scale, dx = dy * scale and dscale = column sums of dy * x.
TEST(Rows, ScaledColumnsHaveTheirGradients) {
  const auto kernels = host<double>();
  Random random(61);
  for (const int n : {0, 1, 7}) {
    Reals x = random_values(random, n, 5), scale = random_values(random, 1, 5);
    const Reals dy = random_values(random, n, 5);
    Reals y(n, 5), dx(n, 5), dscale(1, 5);
    const auto loss = [&] {
      kernels->scale_columns(y, x, scale);
      return inner(y, dy);
    };
    kernels->scale_columns(dx, dy, scale);
    kernels->column_products(dscale, dy, x);
    expect_close(dx, numeric_gradient(x, loss), kGradient);
    expect_close(dscale, numeric_gradient(scale, loss), kGradient);
  }
}

TEST(Rows, SumOfSquaresIsAdded) {
  Reals sum(1, 1, 5.0);
  host<double>()->sum_of_squares(sum, kThree);  // 1 + 4 + 9 + 16 + 25 + 36
  EXPECT_EQ(sum.data, (std::vector<double>{96}));
}

// Next to 2^30, f32 has only multiples of 128. The squares of a chunk of 256 values of 1/4 sum to 16, which
// f32 would lose each time; 64 such chunks are 1,024.
TEST(Rows, SumOfSquaresAddsInDouble) {
  Values<float> x(65, 256, 0.25F), sum(1, 1);
  for (int i = 0; i < 256; ++i) x(0, i) = i == 0 ? 32'768.0F : 0.0F;
  host<float>()->sum_of_squares(sum, x);
  EXPECT_EQ(sum(0, 0), static_cast<float>((1 << 30) + 1024));
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

TEST(Rows, AddRoundAndZero) {
  const auto kernels = host<double>();
  Reals y(3, 2, 1.0);
  kernels->add(y, kThree);
  EXPECT_EQ(y.data, (std::vector<double>{2, 3, 4, 5, 6, 7}));
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
