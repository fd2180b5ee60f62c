#include "costmodel/correction/adaptive.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "core/error.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace correction_switch_test {

constexpr SwitchOptions kShort{.measure = 2, .window = 3};

/// Learns for a window, then measures a cost of 5 %: 10 s without tracking, 10 / 0.95 s with it.
CorrectionSwitch measured() {
  CorrectionSwitch machine(kShort);
  for (int k = 0; k < 3; ++k) machine.observe({Seconds(99), Seconds(8), 0});
  for (int k = 0; k < 2; ++k) machine.observe({Seconds(10), Seconds(8), 0});
  for (int k = 0; k < 2; ++k) machine.observe({Seconds(10 / 0.95), Seconds(8), 0});
  return machine;
}

/// A resting switch whose monitor has seen ten iterations as predicted.
CorrectionSwitch rested() {
  CorrectionSwitch machine = measured();
  for (int k = 0; k < 3; ++k) machine.observe({Seconds(10), Seconds(10), 0});
  for (int k = 0; k < 10; ++k) machine.observe({Seconds(10 + (k % 2) * 0.2), Seconds(10), 0});
  return machine;
}

TEST(CorrectionSwitch, MeasuresWithoutAndWith) {
  CorrectionSwitch machine(kShort);
  struct Step {
    double actual;
    double predicted;
    SwitchState after;
  };
  // Off: 8 s predicted in 10 s, a speed of 0.8. On: 0.75. C = 1 - 0.75 / 0.8 = 6.25 %. Batches differ in
  // size.
  const std::vector<Step> steps = {{50, 8, SwitchState::learning},      {50, 8, SwitchState::learning},
                                   {50, 8, SwitchState::measuring_off}, {10, 8, SwitchState::measuring_off},
                                   {15, 12, SwitchState::measuring_on}, {10, 7.5, SwitchState::measuring_on},
                                   {30, 22.5, SwitchState::tracking}};
  for (const Step& step : steps) {
    EXPECT_FALSE(machine.observe({Seconds(step.actual), Seconds(step.predicted), 0}));
    EXPECT_EQ(machine.state(), step.after);
    EXPECT_EQ(machine.tracks(), step.after != SwitchState::measuring_off);
  }
  EXPECT_NEAR(machine.cost(), 0.0625, 1e-12);
  EXPECT_EQ(machine.iterations(), 7);
}

TEST(CorrectionSwitch, AnIterationOfAnotherKindIsNotTheCost) {
  CorrectionSwitch machine({.measure = 3, .window = 1});
  machine.observe({Seconds(10), Seconds(10), 0});
  for (const double actual : {10.0, 10.0, 10.0, 12.5, 40.0, 12.5}) {
    machine.observe({Seconds(actual), Seconds(10), 0});
  }
  EXPECT_NEAR(machine.cost(), 1 - 1 / 1.25, 1e-12);
}

TEST(CorrectionSwitch, CostIsNeverBelowZero) {
  CorrectionSwitch machine({.measure = 1, .window = 1});
  for (int k = 0; k < 2; ++k) machine.observe({Seconds(10), Seconds(10), 0});
  machine.observe({Seconds(9), Seconds(10), 0});
  EXPECT_EQ(machine.cost(), 0);
}

TEST(CorrectionSwitch, StopsAtTheEndOfAWindowThatDoesNotPay) {
  struct Case {
    std::vector<double> benefits;
    SwitchState after;
  };
  const std::vector<Case> cases = {
      {{0.06, 0.06, 0.06}, SwitchState::tracking},          // above 5 %
      {{0.04, 0.04, 0.04}, SwitchState::resting},           // below
      {{0.0, 0.0, 0.16}, SwitchState::tracking},            // the mean counts: 5.3 %
      {{0.16, -0.16, 0.0}, SwitchState::resting},           // 0
      {{0.06, 0.06, 0.06, 0, 0, 0}, SwitchState::resting},  // windows do not overlap
      {{0, 0}, SwitchState::tracking},                      // not ended
  };
  for (const Case& c : cases) {
    CorrectionSwitch machine = measured();
    for (std::size_t k = 0; k < c.benefits.size(); ++k) {
      const bool ended = machine.observe({Seconds(10), Seconds(10), c.benefits[k]});
      EXPECT_EQ(ended, k % 3 == 2);
    }
    EXPECT_EQ(machine.state(), c.after);
  }
}

TEST(CorrectionSwitch, ABenefitEqualToTheCostDoesNotPay) {
  CorrectionSwitch machine({.measure = 1, .window = 1});
  for (int k = 0; k < 2; ++k) machine.observe({Seconds(1), Seconds(1), 0});
  machine.observe({Seconds(2), Seconds(1), 0});  // C = 1/2 exactly
  machine.observe({Seconds(1), Seconds(1), 0.5});
  EXPECT_EQ(machine.state(), SwitchState::resting);
  EXPECT_EQ(machine.benefit(), 0.5);
}

TEST(CorrectionSwitch, SwitchesOnIfIterationsDriftEitherWay) {
  for (const double factor : {1.1, 0.9}) {
    CorrectionSwitch machine = rested();
    ASSERT_EQ(machine.state(), SwitchState::resting);
    // Spread 0.2 / 10 / 2 = 1 %. A deviation of 10 % is clipped at 4 spreads, minus a slack of 0.75: it
    // passes the limit of 6 at the second iteration.
    machine.observe({Seconds(10 * factor), Seconds(10), 0});
    EXPECT_EQ(machine.state(), SwitchState::resting);
    machine.observe({Seconds(10 * factor), Seconds(10), 0});
    EXPECT_EQ(machine.state(), SwitchState::tracking) << factor;
    EXPECT_NEAR(machine.cost(), 0.05, 1e-12);  // not measured again
  }
}

TEST(CorrectionSwitch, ProbesWhileOffFindChanges) {
  CorrectionSwitch machine({.measure = 1, .window = 1, .probe = 3});
  for (int k = 0; k < 3; ++k) machine.observe({Seconds(10), Seconds(10), 0});
  machine.observe({Seconds(10), Seconds(10), 0});
  ASSERT_EQ(machine.state(), SwitchState::resting);
  // Tracks every third iteration. Those take ten times as long as predicted but do not wake the switch: this
  // is the cost of the probe itself.
  for (int k = 1; k <= 30; ++k) {
    EXPECT_EQ(machine.tracks(), k % 3 == 0) << k;
    machine.observe({Seconds(k % 3 == 0 ? 100 : 10), Seconds(10), 0, k % 3 != 0});
    ASSERT_EQ(machine.state(), SwitchState::resting) << k;
  }
  for (int k = 1; k <= 2; ++k) machine.observe({Seconds(10), Seconds(10), 0, true});  // not tracked: ignored
  EXPECT_EQ(machine.state(), SwitchState::resting);
  machine.observe({Seconds(10), Seconds(10), 0, true});
  EXPECT_EQ(machine.state(), SwitchState::tracking);
}

TEST(CorrectionSwitch, OneSlowIterationDoesNotSwitchItOn) {
  CorrectionSwitch machine = rested();
  machine.observe({Seconds(100), Seconds(10), 0});
  for (int k = 0; k < 20; ++k) machine.observe({Seconds(10), Seconds(10), 0});
  EXPECT_EQ(machine.state(), SwitchState::resting);
}

TEST(CorrectionSwitch, NoiseRarelySwitchesItOn) {
  // 100 seeds of 200 iterations at rest with 3 % noise. For a one-sided test with slack 0.75 and limit 6 the
  // mean time to a false alarm under normal deviations is about 10^4 iterations (Siegmund 1985: (exp(2 x 0.75
  // x 7.17) - 1 - ...) / (2 x 0.75^2) = 4 x 10^4); estimating the spread from the first iterations shortens
  // it. At most a tenth may wake.
  int woken = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CorrectionSwitch machine = measured();
    Random random(seed);
    for (int k = 0; k < 3; ++k) machine.observe({Seconds(10), Seconds(10), 0});
    for (int k = 0; k < 200; ++k) {
      const double z =
          std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(2 * std::numbers::pi * random.uniform());
      machine.observe({Seconds(10 * std::exp(0.03 * z)), Seconds(10), 0});
      if (machine.state() != SwitchState::resting) {
        ++woken;
        break;
      }
    }
  }
  EXPECT_LE(woken, 10);
}

TEST(CorrectionSwitch, IsDeterministic) {
  CorrectionSwitch a(kShort);
  CorrectionSwitch b(kShort);
  Random random(3);
  for (int k = 0; k < 500; ++k) {
    const SwitchInput input{Seconds(9 + 2 * random.uniform()), Seconds(10), 0.1 * random.uniform()};
    a.observe(input);
    b.observe(input);
    ASSERT_EQ(a.state(), b.state());
    ASSERT_EQ(a.benefit(), b.benefit());
  }
}

TEST(CorrectionSwitch, RejectsInvalidTimes) {
  CorrectionSwitch machine;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(machine.observe({Seconds(0), Seconds(1), 0}), Error);
  EXPECT_THROW(machine.observe({Seconds(1), Seconds(nan), 0}), Error);
  EXPECT_THROW(machine.observe({Seconds(1), Seconds(1), nan}), Error);
  EXPECT_EQ(machine.iterations(), 0);
  EXPECT_THROW(CorrectionSwitch({.measure = 0}), Error);
  EXPECT_THROW(CorrectionSwitch({.window = 0}), Error);
  EXPECT_THROW(CorrectionSwitch({.limit = 0}), Error);
  EXPECT_THROW(CorrectionSwitch({.probe = -1}), Error);
}

}  // namespace correction_switch_test
}  // namespace dflop
