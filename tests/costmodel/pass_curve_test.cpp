// Times of one pass of a unit between and beyond its points, on hosts and on devices that launch kernels.
#include "costmodel/profiled/curves.hpp"

#include <gtest/gtest.h>

#include "core/support/random.hpp"

namespace dflop {
namespace pass_curve_test {

constexpr bool kHost = false;
constexpr bool kGpu = true;

double at(const PassCurve& curve, double tokens, double length = 0) {
  return curve.at(tokens, length).count();
}

/// Points below four times the shortest, 10 us, are launch-bound: the points of 20 and 30 us, but not the one
/// of 50 us.
TEST(PassCurve, IgnoresPointsThatLaunchesLimit) {
  const std::vector<TimedPoint> points = {{16, 0, 10e-6}, {32, 0, 20e-6}, {64, 0, 30e-6}};
  // A host continues at 10 us per 32 tokens: 30 + 2 * 10. A GPU continues at 30 us per 64 tokens: twice 30.
  EXPECT_NEAR(at({points, false, kHost}, 128), 50e-6, 1e-12);
  EXPECT_NEAR(at({points, false, kGpu}, 128), 60e-6, 1e-12);
  EXPECT_NEAR(at({points, false, kGpu}, 48), 25e-6, 1e-12);  // between points it interpolates, as for a host
  // With 50 us at 128 and 90 us at 256, neither point is launch-bound: 90 + 40 us per 128 tokens at 384.
  const std::vector<TimedPoint> more = {{16, 0, 10e-6}, {64, 0, 30e-6}, {128, 0, 50e-6}, {256, 0, 90e-6}};
  EXPECT_NEAR(at({more, false, kGpu}, 384), 130e-6, 1e-12);
}

/// Measured on 256 and 1024 tokens: 10 and 16 us, a line of 8 us plus 1/128 us per token.
TEST(PassCurve, PutsALineThroughTwoNumbersOfTokensOfALength) {
  const std::vector<TimedPoint> points = {{256, 64, 10e-6}, {1024, 64, 16e-6}};
  for (const bool launches : {kHost, kGpu}) {
    const PassCurve curve(points, true, launches);
    EXPECT_NEAR(at(curve, 256, 64), 10e-6, 1e-12);
    EXPECT_NEAR(at(curve, 1024, 64), 16e-6, 1e-12);
    EXPECT_NEAR(at(curve, 2048, 64), 24e-6, 1e-12);
    EXPECT_NEAR(at(curve, 64, 64), 8.5e-6, 1e-12);
    EXPECT_NEAR(at(curve, 1024, 16), 16e-6, 1e-12);  // shorter than measured: same time
  }
  // A line that would start below zero goes through the origin and the larger point.
  const PassCurve steep(std::vector<TimedPoint>{{256, 64, 1e-6}, {1024, 64, 16e-6}}, true, kGpu);
  EXPECT_NEAR(at(steep, 1024, 64), 16e-6, 1e-12);
  EXPECT_NEAR(at(steep, 512, 64), 8e-6, 1e-12);
}

/// 256 tokens in sequences of 64 take 10 us, the floor, and 1024 tokens in one sequence of 1024 take 100 us,
/// which is not launch-bound: 100 / 1024 us per token. Sequences of 64 have 1/16 of these pairs and so 1/16
/// of the rate, 6.1 ns: of 8192 tokens, the 7936 beyond the point take 48.4 us more.
TEST(PassCurve, TakesRatesOfBoundAttentionFromLongerSequences) {
  const std::vector<TimedPoint> points = {{256, 64, 10e-6}, {1024, 1024, 100e-6}};
  const double rate = 100e-6 / 1024 / 16;
  EXPECT_NEAR(at({points, true, kGpu}, 8192, 64), 10e-6 + 7936 * rate, 1e-12);
  EXPECT_NEAR(at({points, true, kGpu}, 256, 64), 10e-6, 1e-12);
  EXPECT_NEAR(at({points, true, kHost}, 8192, 64), 32 * 10e-6, 1e-12);  // a host scales by time per token
  EXPECT_NEAR(at({points, true, kGpu}, 2048, 1024), 200e-6, 1e-12);
}

/// Beyond the longest sequence a GPU follows the time per pair; a host follows the slope of the time per
/// token.
TEST(PassCurve, ExtrapolatesByPairsBeyondTheLongestSequence) {
  const std::vector<TimedPoint> points = {{256, 256, 10e-6}, {1024, 1024, 100e-6}, {2048, 2048, 300e-6}};
  EXPECT_NEAR(at({points, true, kGpu}, 4096, 4096), 4 * 300e-6, 1e-12);
  const double slope = (300e-6 / 2048 - 100e-6 / 1024) / 1024;
  EXPECT_NEAR(at({points, true, kHost}, 4096, 4096), 4096 * (300e-6 / 2048 + 2048 * slope), 1e-12);
}

/// More tokens never take less time, and no time is negative, whatever the noise in the points.
TEST(PassCurve, NeverFallsWithTheTokens) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    const bool attention = random.below(2) == 0;
    std::vector<TimedPoint> points;
    for (double x = 16; x <= 1024; x *= 2) {
      const auto add = [&](double tokens) {
        points.push_back({tokens, attention ? x : 0, 1e-6 * (1 + 50 * random.uniform())});
      };
      add(attention ? std::max(x, 256.0) : x);
      if (attention && random.below(2) == 0) add(4096);
    }
    const PassCurve curve(points, attention, random.below(2) == 0);
    for (const double length : {0.0, 8.0, 100.0, 700.0, 5000.0}) {
      double before = 0;
      for (double tokens = 1; tokens < 20'000; tokens *= 1.3) {
        const double now = at(curve, tokens, length);
        EXPECT_GE(now, before - 1e-15) << "round " << round << ", " << tokens << " of length " << length;
        before = now;
      }
    }
  }
}

}  // namespace pass_curve_test
}  // namespace dflop
