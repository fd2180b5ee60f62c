#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/kernels/values.hpp"

namespace dflop::testing {
namespace optimizer_test {

struct State {
  Reals weight;
  Reals master;
  Reals m;
  Reals v;

  State(std::int64_t rows, std::int64_t columns, double start)
      : weight(rows, columns, 9.0), master(rows, columns, start), m(rows, columns), v(rows, columns) {}
  void step(const Reals& gradient, const AdamWStep& step) {
    host<double>()->adamw(weight, master, m, v, gradient, step);
  }
};

// b1 = 0.9, b2 = 0.75, epsilon = 0.5, rate 0.1, decay 0.2, from 1.
// Step 1, g = 0.5: m = 0.05, m / 0.1 = 0.5; v = 0.25 * 0.25 = 0.0625, v / 0.25 = 0.25, root 0.5.
//   master = 1 - 0.1 (0.5 / (0.5 + 0.5) + 0.2 * 1) = 0.93.
// Step 2, g = -0.5: m = 0.045 - 0.05 = -0.005, m / 0.19 = -0.5 / 19; v = 0.75 * 0.0625 + 0.0625 = 0.109375,
//   v / 0.4375 = 0.25. master = 0.93 - 0.1 (-0.5 / 19 + 0.2 * 0.93) = 0.9114 + 0.05 / 19.
TEST(AdamW, TwoStepsByHand) {
  State state(1, 1, 1.0);
  AdamWStep step{0.1, 0.9, 0.75, 0.5, 0.2, 1};
  state.step(Reals(1, 1, 0.5), step);
  EXPECT_NEAR(state.m(0, 0), 0.05, kExact);
  EXPECT_NEAR(state.v(0, 0), 0.0625, kExact);
  EXPECT_NEAR(state.master(0, 0), 0.93, kExact);
  EXPECT_EQ(state.weight(0, 0), state.master(0, 0));
  step.step = 2;
  state.step(Reals(1, 1, -0.5), step);
  EXPECT_NEAR(state.m(0, 0), -0.005, kExact);
  EXPECT_NEAR(state.v(0, 0), 0.109375, kExact);
  EXPECT_NEAR(state.master(0, 0), 0.9114 + 0.05 / 19.0, kExact);
  EXPECT_EQ(state.weight(0, 0), state.master(0, 0));
}

// Each value's step is independent of its neighbors. 700 values are more than two chunks.
TEST(AdamW, StepsEachValueAlone) {
  Random random(61);
  const Reals gradient = random_values(random, 7, 100);
  const AdamWStep step{0.01, 0.9, 0.95, 1e-8, 0.1, 5};
  State all(7, 100, 2.0);
  all.step(gradient, step);
  for (const std::size_t i : {0UL, 255UL, 256UL, 511UL, 699UL}) {
    State one(1, 1, 2.0);
    one.step(Reals(1, 1, gradient.data[i]), step);
    EXPECT_NEAR(all.weight.data[i], one.weight(0, 0), kExact) << i;
  }
}

/// The gradient factor gives the same bits as gradients that were multiplied and rounded once beforehand.
/// Both steps use the same memory: its alignment decides which values Eigen computes one by one, and such
/// square roots may differ in the last bit from square roots of whole packets.
template <typename T>
void expect_factor_alike() {
  Random random(67);
  const auto gradient = random_values<T>(random, 7, 100);
  const auto start = random_values<T>(random, 7, 100);
  auto scaled = gradient;
  for (T& g : scaled.data) g *= static_cast<T>(1.0 / 3.0);
  auto master = start, m = start, v = start, weight = start;
  const auto stepped = [&](const Values<T>& gradients, double factor) {
    AdamWStep step{0.01, 0.9, 0.95, 1e-8, 0.1, 5};
    step.gradient_factor = factor;
    std::ranges::copy(start.data, master.data.begin());
    std::ranges::copy(start.data, m.data.begin());
    std::ranges::fill(v.data, T(2));
    host<T>()->adamw(weight, master, m, v, gradients, step);
    return std::array{master.data, m.data, v.data, weight.data};
  };
  const auto expected = stepped(scaled, 1);
  EXPECT_EQ(stepped(gradient, 1.0 / 3.0), expected);
  EXPECT_NE(expected[1], start.data);
}

TEST(AdamW, TakesAFactorOfGradientsToTheBit) {
  expect_factor_alike<double>();
  expect_factor_alike<float>();
}

}  // namespace optimizer_test
}  // namespace dflop::testing
