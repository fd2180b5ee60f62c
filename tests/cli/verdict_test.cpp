// Verdicts on synthetic runs with known truth: quiet, loaded and drifting machines.
#include "experiments/checks/runs/verdict.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "core/support/random.hpp"

namespace dflop {
namespace verdict_test {

constexpr int kDraws = 1000;

double normal(Random& random) {  // Box and Muller 1958
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(2 * std::numbers::pi * random.uniform());
}

/// A Machine returns the time of a step that should take 1 s. `step` counts all steps from 0.
using Machine = std::function<double(Random&, int step)>;

Machine quiet(double noise = 0.015) {
  return [=](Random& random, int) { return std::exp(noise * normal(random)); };
}

/// Other processes come and go, stay for a mean of five steps, and use half of the machine while present.
Machine loaded() {
  return [there = false](Random& random, int step) mutable {
    if (step == 0) there = false;
    there = random.uniform() < (there ? 0.8 : 0.07);
    return std::exp(0.04 * normal(random)) * (there ? 1.2 + 0.6 * random.uniform() : 1);
  };
}

/// The machine heats up, and its clock goes up and down.
Machine drifting() {
  return [](Random& random, int step) {
    return std::exp(0.015 * normal(random)) * (1 + 0.004 * step + 0.1 * std::sin(step / 9.0));
  };
}

/// Returns the judgment on a run with `steps` steps for each of two plans. The second takes (1 + truth) of
/// the first plan's time, and (1 + predicted) was predicted. Batches differ in size.
Judgment run(Machine machine, Random& random, int steps, double truth, double predicted) {
  std::vector<double> first, second, first_predicted, second_predicted;
  for (int i = 0; i < steps; ++i) {
    const double batch = std::exp(0.3 * normal(random));
    const double a = batch * machine(random, 2 * i);
    const double b = batch * machine(random, 2 * i + 1);
    // The order of the two alternates.
    first.push_back(i % 2 == 0 ? a : b);
    second.push_back((1 + truth) * (i % 2 == 0 ? b : a));
    first_predicted.push_back(batch);
    second_predicted.push_back((1 + predicted) * batch);
  }
  return judge(paired_blocks(first, second), paired_blocks(first_predicted, second_predicted));
}

struct Counts {
  int confirmed = 0;
  int refuted = 0;
  int cannot_say = 0;
};

Counts draw(const Machine& machine, int steps, double truth, double predicted) {
  Counts counts;
  for (int seed = 0; seed < kDraws; ++seed) {
    Random random(static_cast<std::uint64_t>(seed), 15);
    const LiveVerdict verdict = run(machine, random, steps, truth, predicted).verdict;
    ++(verdict == LiveVerdict::confirmed ? counts.confirmed
       : verdict == LiveVerdict::refuted ? counts.refuted
                                         : counts.cannot_say);
  }
  return counts;
}

struct Case {
  std::string name;
  Machine machine;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {{"quiet", quiet()}, {"loaded", loaded()}, {"drifting", drifting()}};
  return all;
}

constexpr int kMaxWrong = kDraws / 20;  // a 95 % level

TEST(VerdictTest, RightPredictionsAreSeldomRefuted) {
  for (const Case& c : cases()) {
    for (const double truth : {0.0, 0.02, -0.1, 0.1}) {
      for (const int steps : {10, 20, 60}) {
        const Counts counts = draw(c.machine, steps, truth, truth);
        EXPECT_LE(counts.refuted, kMaxWrong) << c.name << ' ' << truth << ' ' << steps;
      }
    }
  }
}

TEST(VerdictTest, WrongPredictionsAreSeldomConfirmed) {
  // 2 % apart with 4.1 % predicted, equal with 2.1 % predicted, 10 % apart with 13 % or nothing predicted:
  // all are off by slightly more than the tolerance of 2 % or a quarter, or by far.
  const std::pair<double, double> wrong[] = {{0.02, 0.041}, {0, 0.021}, {0.1, 0.138}, {0.1, 0}, {-0.1, 0.1}};
  for (const Case& c : cases()) {
    for (const auto& [truth, predicted] : wrong) {
      for (const int steps : {10, 20, 60}) {
        const Counts counts = draw(c.machine, steps, truth, predicted);
        EXPECT_LE(counts.confirmed, kMaxWrong) << c.name << ' ' << truth << ' ' << predicted << ' ' << steps;
      }
    }
  }
}

TEST(VerdictTest, AQuietMachineSettlesTenPercentInFortySteps) {
  // 20 steps for each of the two are 40 in all.
  EXPECT_GE(draw(quiet(0.01), 20, 0.1, 0.1).confirmed, 0.99 * kDraws);
  EXPECT_GE(draw(quiet(0.015), 20, 0.1, 0.1).confirmed, 0.85 * kDraws);
  EXPECT_GE(draw(quiet(0.015), 40, 0.1, 0.1).confirmed, 0.99 * kDraws);
  EXPECT_GE(draw(quiet(0.015), 20, 0.1, 0).refuted, 0.99 * kDraws);
}

TEST(VerdictTest, CannotSayIfNoiseIsTooLarge) {
  // 4 % of noise in each step is 4 % in each block of two pairs: five blocks cannot distinguish 2 % from
  // zero.
  const Counts counts = draw(loaded(), 10, 0.02, 0.0);
  EXPECT_GE(counts.cannot_say, 0.8 * kDraws) << counts.confirmed << ' ' << counts.refuted;
}

TEST(VerdictTest, SaysHowManyMoreStepsItWouldTake) {
  // With the suggested number of additional blocks, at least half of the undecided runs can be decided.
  int asked = 0;
  int settled = 0;
  for (int seed = 0; seed < 200; ++seed) {
    Random random(static_cast<std::uint64_t>(seed), 16);
    const Judgment first = run(loaded(), random, 10, 0.1, 0.1);
    if (!first.more_blocks || *first.more_blocks > 2000) continue;
    ++asked;
    const int steps = 10 + 2 * static_cast<int>(*first.more_blocks);
    Random again(static_cast<std::uint64_t>(seed), 17);
    settled += run(loaded(), again, steps, 0.1, 0.1).verdict != LiveVerdict::cannot_say ? 1 : 0;
  }
  ASSERT_GE(asked, 50);
  EXPECT_GE(settled, asked / 2) << settled << " of " << asked;
}

TEST(VerdictTest, ABlockCancelsAnEvenDrift) {
  // Steps take 1, 1.1, 1.21, 1.331 s in the order A B B A for two equal plans: ln 1.1 - ln 1.1 = 0.
  EXPECT_NEAR(paired_blocks(std::vector{1.0, 1.331}, std::vector{1.1, 1.21}).at(0), 0, 1e-12);
  EXPECT_EQ(paired_blocks(std::vector{1.0, 1.0, 1.0}, std::vector{1.0, 1.0, 1.0}).size(), 1u);
}

TEST(VerdictTest, OneSlowStepMovesLittle) {
  // Five of ten values are 1 %, four -1 %, one 400 %. Trimming two at either end leaves 1 % four times and
  // -1 % twice.
  const std::vector<double> values = {0.01, -0.01, 0.01, 4, -0.01, 0.01, -0.01, 0.01, -0.01, 0.01};
  EXPECT_NEAR(trimmed_interval(values, 0.95).mean, (4 * 0.01 - 2 * 0.01) / 6, 1e-12);
}

TEST(VerdictTest, LargeDifferencesAreJudgedAsRatios) {
  // The prediction was six times as long, the measurement 1.3 times. A quarter of ln 6 = 1.79 is 0.448, so
  // 6 e^-0.448 = 3.83 to 6 e^0.448 = 9.39 would be right.
  const auto judged = [](double ratio) {
    return judge(std::vector<double>(6, std::log(ratio)), std::vector<double>(6, std::log(6.0)));
  };
  EXPECT_EQ(judged(1.3).verdict, LiveVerdict::refuted);
  EXPECT_EQ(judged(3.8).verdict, LiveVerdict::refuted);
  EXPECT_EQ(judged(3.9).verdict, LiveVerdict::confirmed);
  EXPECT_EQ(judged(9.3).verdict, LiveVerdict::confirmed);
  EXPECT_EQ(judged(9.5).verdict, LiveVerdict::refuted);
  EXPECT_NEAR(judged(6).tolerated().low, 2.83, 0.01);
  EXPECT_NEAR(judged(6).tolerated().high, 8.39, 0.01);
}

TEST(VerdictTest, EqualValuesHaveNoWidth) {
  const Judgment judgment = judge(std::vector<double>(6, std::log(1.1)), std::vector<double>(6, 0.0));
  EXPECT_NEAR(judgment.measured.low, 0.1, 1e-12);
  EXPECT_NEAR(judgment.measured.high, 0.1, 1e-12);
  EXPECT_EQ(judgment.verdict, LiveVerdict::refuted);
  EXPECT_FALSE(judgment.more_blocks);
}

}  // namespace verdict_test
}  // namespace dflop
