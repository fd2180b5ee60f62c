// A ProfileCurve gives a measured duration between and beyond its points.
#pragma once

#include <vector>

namespace dflop {

/// A ProfileCurve does not fall and is piecewise linear. Points that fall below one before them are noise:
/// neighbours are joined into one knot, the mean of their places and of their values, until none falls
/// (isotonic regression by pooling adjacent violators, Barlow et al. 1972; means of places are ours, so that
/// no piece is flat). Points that rise are met exactly.
class ProfileCurve {
 public:
  /// Below is the rule for places below the first point.
  enum class Below {
    proportional,  ///< the line to the origin
    constant,      ///< the first value
  };

  /// Joins the points: x are the places of the points, rising and positive; y the values there, not negative;
  /// as many of both, at least one.
  /// @throws Error (internal) for another number of values than places, or none
  ProfileCurve(const std::vector<double>& x, const std::vector<double>& y, Below below);

  /// Returns the duration at x. Beyond the last knot it goes on by the slope of the last piece; with one knot
  /// by that of the line to the origin.
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
