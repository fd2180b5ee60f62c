// This file solves bounded nonlinear least-squares problems, to fit a GPU type's parameters to measurements.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace dflop {

/// A LeastSquares problem has residuals, a point to start from, and bounds.
struct LeastSquares {
  /// Returns the residuals at a point; their number is the same at every point.
  std::function<std::vector<double>(const std::vector<double>&)> residuals;
  std::vector<double> start;  ///< inside the bounds
  std::vector<double> lower;
  std::vector<double> upper;
  /// Residuals larger than this count less: each costs 2 s² (sqrt(1 + r² / s²) - 1), which is r² near zero
  /// and 2 s |r| far out (Charbonnier et al. 1997; "soft L1"). 0 means plain squares.
  double robust_scale = 0;
  int most_steps = 200;
};

/// Returns half the sum of the residuals' squares, or of their robust costs (see LeastSquares::robust_scale).
double robust_cost(std::span<const double> residuals, double scale);

/// A LeastSquaresFit is the point at which the search ended.
struct LeastSquaresFit {
  std::vector<double> point;
  double cost = 0;  ///< half the sum; see robust_cost()
  int steps = 0;    ///< accepted
};

/// Minimizes by Levenberg-Marquardt (Marquardt 1963) with projection on the bounds: a variable at a bound
/// whose gradient points outward is held for the step, and the steps of other variables are clipped (Kanzow,
/// Yamashita and Fukushima 2004). It handles robust costs by reweighting in each step (Triggs et al. 2000,
/// without their second-order term). Derivatives are forward differences of 1e-4, so variables should be of
/// the order of 1. The search ends when a step changes the cost by less than a relative 1e-9. It is
/// deterministic.
/// @throws Error (internal) if sizes differ, the start is out of bounds, or a residual is not finite there.
LeastSquaresFit minimize(const LeastSquares& problem);

}  // namespace dflop
