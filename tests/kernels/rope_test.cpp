#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace rope_test {

constexpr double kBase = 100.0;

// Two query heads and one key head of width 4. Pair 0 (columns 0 and 2 of a head) is rotated by the position,
// pair 1 (columns 1 and 3) by position * 100^(-2 / 4) = position / 10. Value heads stay unchanged.
TEST(Rope, TurnsPairsOfQueriesAndKeysByPosition) {
  const AttentionShape shape{2, 1, 4, true};
  const Ints positions = {3, 0};
  Random random(17);
  const Reals before = random_values(random, 2, shape.qkv_columns());
  Reals after = before;
  host<double>()->rope(after, shape, indices(positions), turns_to(3, 4, kBase), false);
  for (int row = 0; row < 2; ++row) {
    for (int head = 0; head < 3; ++head) {
      for (int pair = 0; pair < 2; ++pair) {
        const double angle = positions[static_cast<std::size_t>(row)] * (pair == 0 ? 1.0 : 0.1);
        const int i = 4 * head + pair;
        const double x = before(row, i);
        const double y = before(row, i + 2);
        EXPECT_NEAR(after(row, i), x * std::cos(angle) - y * std::sin(angle), kExact);
        EXPECT_NEAR(after(row, i + 2), y * std::cos(angle) + x * std::sin(angle), kExact);
      }
    }
    for (int column = 12; column < 16; ++column) EXPECT_EQ(after(row, column), before(row, column));
  }
}

// Rows may use any row of the table, and several rows the same one.
TEST(Rope, ReturnsTheRequestedRowsOfTheTable) {
  Random random(31);
  const AttentionShape shape{1, 1, 6, true};
  const Reals turns = random_values(random, 4, 6);  // any numbers will do
  const Ints rows = {3, 0, 3};
  Reals x(3, shape.qkv_columns(), 1.0);
  host<double>()->rope(x, shape, indices(rows), turns, false);
  for (int row = 0; row < 3; ++row) {
    for (int pair = 0; pair < 3; ++pair) {
      const double cosine = turns(rows[static_cast<std::size_t>(row)], pair);
      const double sine = turns(rows[static_cast<std::size_t>(row)], 3 + pair);
      EXPECT_NEAR(x(row, pair), cosine - sine, kExact);
      EXPECT_NEAR(x(row, 3 + pair), cosine + sine, kExact);
    }
  }
}

// The rotation is orthogonal, so its gradient is its inverse: <turn(x), dy> = <x, inverse(dy)>.
TEST(Rope, InverseIsItsGradientAndTurnsBack) {
  const auto kernels = host<double>();
  Random random(19);
  for (const AttentionShape& shape : {AttentionShape{1, 1, 2, true}, AttentionShape{4, 2, 6, false}}) {
    const Reals turns = turns_to(5000, shape.head_dim, kBase);
    for (const int n : {0, 1, 9}) {
      const Ints positions = random_ints(random, n, 5000);
      const Reals x = random_values(random, n, shape.qkv_columns());
      const Reals dy = random_values(random, n, shape.qkv_columns());
      Reals turned = x;
      kernels->rope(turned, shape, indices(positions), turns, false);
      Reals dx = dy;
      kernels->rope(dx, shape, indices(positions), turns, true);
      EXPECT_NEAR(inner(turned, dy), inner(x, dx), kExact * static_cast<double>(1 + x.data.size()));
      kernels->rope(turned, shape, indices(positions), turns, true);
      expect_close(turned, x, kExact);
    }
  }
}

// The purpose of rope: the score of a query at position p and a key at position q depends only on p - q.
TEST(Rope, ScoresDependOnTheDistanceOnly) {
  const AttentionShape shape{1, 1, 8, true};
  const auto kernels = host<double>();
  Random random(23);
  const Reals x = random_values(random, 2, shape.qkv_columns());
  const Reals turns = turns_to(107, 8, kBase);
  const auto score = [&](std::int32_t query, std::int32_t key) {
    Reals turned = x;
    const Ints positions = {query, key};
    kernels->rope(turned, shape, indices(positions), turns, false);
    double sum = 0.0;
    for (int i = 0; i < 8; ++i) sum += turned(0, i) * turned(1, 8 + i);
    return sum;
  };
  EXPECT_NEAR(score(12, 5), score(107, 100), 1e-11);
  EXPECT_GT(std::abs(score(12, 5) - score(12, 6)), 1e-6);
}

}  // namespace rope_test
}  // namespace dflop::testing
