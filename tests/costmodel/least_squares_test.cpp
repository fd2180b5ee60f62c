#include "costmodel/least_squares.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"

namespace dflop {
namespace least_squares_test {

/// exp(a t) + b at t = 0, 0.1, ... 1 for a = -1.3 and b = 0.4.
LeastSquares decay() {
  LeastSquares problem;
  problem.residuals = [](const std::vector<double>& x) {
    std::vector<double> residuals;
    for (int i = 0; i <= 10; ++i) {
      const double t = 0.1 * i;
      residuals.push_back(std::exp(x[0] * t) + x[1] - (std::exp(-1.3 * t) + 0.4));
    }
    return residuals;
  };
  problem.start = {0.5, 0};
  problem.lower = {-3, -1};
  problem.upper = {3, 1};
  return problem;
}

TEST(LeastSquares, RecoversKnownParameters) {
  const LeastSquaresFit fit = minimize(decay());
  EXPECT_NEAR(fit.point[0], -1.3, 1e-5);
  EXPECT_NEAR(fit.point[1], 0.4, 1e-5);
  EXPECT_GT(fit.steps, 0);
}

TEST(LeastSquares, StopsAtABoundAndFitsTheRest) {
  LeastSquares problem;
  // (x - 5)² + (x + y - 6)² with x <= 2: y = 4.
  problem.residuals = [](const std::vector<double>& x) {
    return std::vector<double>{x[0] - 5, x[0] + x[1] - 6};
  };
  problem.start = {0, 0};
  problem.lower = {-2, -10};
  problem.upper = {2, 10};
  const LeastSquaresFit fit = minimize(problem);
  EXPECT_EQ(fit.point[0], 2);
  EXPECT_NEAR(fit.point[1], 4, 1e-5);
  EXPECT_NEAR(fit.cost, 4.5, 1e-6);
}

TEST(LeastSquares, RobustCostsIgnoreAnOutlier) {
  LeastSquares problem;
  // Ten measurements of 1 and one of 100: the mean is 10, the robust center is near 1.
  problem.residuals = [](const std::vector<double>& x) {
    std::vector<double> residuals(11, x[0] - 1);
    residuals[10] = x[0] - 100;
    return residuals;
  };
  problem.start = {50};
  problem.lower = {0};
  problem.upper = {200};
  EXPECT_NEAR(minimize(problem).point[0], 10, 1e-4);
  problem.robust_scale = 0.1;
  EXPECT_NEAR(minimize(problem).point[0], 1, 0.02);
}

TEST(LeastSquares, RejectsAStartOutOfBounds) {
  LeastSquares problem = decay();
  problem.start = {4, 0};
  EXPECT_THROW(minimize(problem), Error);
  problem = decay();
  problem.upper.pop_back();
  EXPECT_THROW(minimize(problem), Error);
}

}  // namespace least_squares_test
}  // namespace dflop
