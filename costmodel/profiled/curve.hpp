// A measured duration between and beyond its points.
#pragma once

#include <vector>

namespace dflop {

/// Non-decreasing and piecewise linear. Points that fall below one before them are noise: neighbours are
/// joined into one knot, the mean of their places and of their values, until none falls (isotonic
/// regression by pooling adjacent violators, Barlow et al. 1972; means of places are ours, so that no piece
/// is flat). Points that rise are met exactly.
class ProfileCurve {
 public:
  /// What holds below the first point.
  enum class Below {
    proportional,  ///< the line to the origin
    constant,      ///< the first value
  };

  /// x rises and is positive; y is not negative; as many of both, at least one.
  ProfileCurve(const std::vector<double>& x, const std::vector<double>& y, Below below);

  /// Beyond the last knot by the slope of the last piece; with one knot by that of the line to the origin.
  /// @pre x >= 0
  double at(double x) const;

 private:
  struct Knot {
    double x;
    double y;
  };
  std::vector<Knot> knots_;
  Below below_;
};

}  // namespace dflop
