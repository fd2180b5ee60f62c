// Curves through a profile's points: what one pass of a unit takes on any number of tokens.
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
  /// Beyond is the rule for places beyond the last knot.
  enum class Beyond {
    slope,  ///< of the last piece; with one knot of the line to the origin
    rate,   ///< the line from the origin through the last knot
  };

  /// Joins the points: x are the places of the points, rising and positive; y the values there, not negative;
  /// as many of both, at least one.
  /// @throws Error (internal) for another number of values than places, or none
  ProfileCurve(const std::vector<double>& x, const std::vector<double>& y, Below below,
               Beyond beyond = Beyond::slope);

  /// Returns the value at x. @pre x >= 0
  double at(double x) const;

 private:
  std::vector<CurveKnot> knots_;
  Below below_;
  Beyond beyond_;
};

/// A TimedPoint is what one pass took on `tokens` in sequences of `length`; of units without attention length
/// is 0.
struct TimedPoint {
  double tokens = 0;
  double length = 0;
  double seconds = 0;
};

/// A PassCurve gives the time of one pass of a unit.
///
/// A device that launches kernels takes some time for any of them, the floor: the shortest of the points.
/// Points below four floors are bound by it. Their times say next to nothing of what more tokens take, so
/// that no line through one of them is followed beyond the last point, whose time a token is taken instead.
///
/// Attention takes start(length) + tokens * rate(length). Where a length was measured on two numbers of
/// tokens, both come from the line through the two points. Where there is one number, the rate is its time a
/// token; of a point that launches bind, it takes the rate of the next longer length that launches do not
/// bind, in proportion to the length as pairs are, and the start what the point took beyond it. Beyond the
/// longest sequence a device that launches kernels takes the last point's time of a pair, a host the last
/// line.
class PassCurve {
 public:
  /// `points` rise in length, then in tokens. @param launches  whether the device launches kernels
  PassCurve(std::span<const TimedPoint> points, bool attention, bool launches);

  Seconds at(double tokens, double length) const;

 private:
  ProfileCurve curve_;             // over tokens, of attention the rate over lengths
  std::vector<CurveKnot> starts_;  // of attention: over lengths
};

}  // namespace dflop
