// These curves through a profile's points give the time of one pass of a unit for any number of tokens.
#pragma once

#include <span>
#include <vector>

#include "core/units.hpp"

namespace dflop {

/// A CurveKnot is a point that a curve goes through.
struct CurveKnot {
  double x = 0;
  double y = 0;
};

/// A ProfileCurve is piecewise linear and never falls. A point below an earlier one counts as noise:
/// neighboring points are merged into one knot, at the mean of their places and of their values, until no
/// knot falls (isotonic regression by pooling adjacent violators, Barlow et al. 1972; we also average the
/// places so that no piece is flat). The curve passes exactly through points that rise.
class ProfileCurve {
 public:
  /// Below is the rule for places before the first point.
  enum class Below {
    proportional,  ///< the line to the origin
    constant,      ///< the first value
  };
  /// Beyond is the rule for places after the last knot.
  enum class Beyond {
    slope,  ///< of the last piece; with one knot, of the line to the origin
    rate,   ///< the line from the origin through the last knot
  };

  /// Builds the curve through points with places x and values y. Places are positive and rising, and values
  /// are not negative. x and y have the same size, at least one.
  /// @throws Error (internal) if the sizes differ or are zero
  ProfileCurve(const std::vector<double>& x, const std::vector<double>& y, Below below,
               Beyond beyond = Beyond::slope);

  /// Returns the value at x. @pre x >= 0
  double at(double x) const;

 private:
  std::vector<CurveKnot> knots_;
  Below below_;
  Beyond beyond_;
};

/// A TimedPoint is the time of one pass over `tokens` in sequences of `length`; units without attention have
/// length 0.
struct TimedPoint {
  double tokens = 0;
  double length = 0;
  double seconds = 0;
};

/// A PassCurve gives the time of one pass of a unit.
///
/// On a device that launches kernels, every pass takes at least the launch time, the floor: the shortest time
/// of all points. Points below four floors are launch-bound. Their times say little about larger inputs, so
/// the curve never extrapolates a line through one of them beyond the last point; it uses the last point's
/// time per token instead.
///
/// Attention takes start(length) + tokens * rate(length). If a length was measured at two numbers of tokens,
/// both terms come from the line through the two points. With only one number of tokens, the rate is the time
/// per token. A launch-bound point instead takes the rate of the next longer length that is not launch-bound,
/// in proportion to the length, because pairs are proportional to it; its start is the rest of its time.
/// Beyond the longest sequence, a device that launches kernels uses the last point's time per pair, and a
/// host continues the last line.
class PassCurve {
 public:
  /// Builds the curve from `points`, which rise in length, then in tokens. @param launches  whether the
  /// device launches kernels
  PassCurve(std::span<const TimedPoint> points, bool attention, bool launches);

  Seconds at(double tokens, double length) const;

 private:
  ProfileCurve curve_;             // over tokens; for attention, the rate over lengths
  std::vector<CurveKnot> starts_;  // for attention: over lengths
};

}  // namespace dflop
