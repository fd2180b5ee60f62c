#include "costmodel/profiled/curves.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr double kBoundFloors = 4;  // passes shorter than this many floors are launch-bound

/// Returns the value at x on the lines between knots; beyond the ends, on the first or last line.
double on_lines(std::span<const CurveKnot> knots, double x) {
  if (knots.size() == 1) return knots.front().y;
  const auto next =
      std::find_if(knots.begin() + 1, knots.end() - 1, [&](const CurveKnot& k) { return x <= k.x; });
  const CurveKnot& a = *(next - 1);
  const CurveKnot& b = *next;
  return x == b.x ? b.y : a.y + (b.y - a.y) * ((x - a.x) / (b.x - a.x));
}

/// Returns the time below which a pass is launch-bound; 0 if nothing is launched.
double bound_of(std::span<const TimedPoint> points, bool launches) {
  double floor = std::numeric_limits<double>::infinity();
  for (const TimedPoint& point : points) {
    if (point.seconds > 0) floor = std::min(floor, point.seconds);
  }
  return launches && floor < std::numeric_limits<double>::infinity() ? kBoundFloors * floor : 0;
}

ProfileCurve curve_of_tokens(std::span<const TimedPoint> points, double bound) {
  std::vector<double> x;
  std::vector<double> y;
  for (const TimedPoint& point : points) {
    x.push_back(point.tokens);
    y.push_back(point.seconds);
  }
  const auto last = points.last(std::min<std::size_t>(2, points.size()));
  const bool is_bound = std::ranges::any_of(last, [&](const TimedPoint& p) { return p.seconds < bound; });
  return {x, y, ProfileCurve::Below::proportional,
          is_bound ? ProfileCurve::Beyond::rate : ProfileCurve::Beyond::slope};
}

/// A LengthLine is attention at one length: start + tokens * rate.
struct LengthLine {
  double length = 0;
  double start = 0;
  double rate = 0;
  bool is_bound = false;  ///< launch-bound, with only one point
};

/// Returns the line through points of one length, which rise in tokens.
LengthLine line_of(std::span<const TimedPoint> points, double bound) {
  const TimedPoint& first = points.front();
  const TimedPoint& last = points.back();
  LengthLine line{last.length, 0, last.seconds / last.tokens, false};
  if (points.size() == 1) {
    line.is_bound = last.seconds < bound;
    return line;
  }
  const double rate = (last.seconds - first.seconds) / (last.tokens - first.tokens);
  if (rate < line.rate) {  // otherwise the line would start below zero
    line.rate = std::max(0.0, rate);
    line.start = last.seconds - last.tokens * line.rate;
  }
  return line;
}

std::vector<LengthLine> lines_of(std::span<const TimedPoint> points, double bound) {
  std::vector<LengthLine> lines;
  for (std::size_t end = points.size(); end > 0;) {
    std::size_t begin = end - 1;
    while (begin > 0 && points[begin - 1].length == points[begin].length) --begin;
    LengthLine line = line_of(points.subspan(begin, end - begin), bound);
    if (line.is_bound && !lines.empty() && !lines.back().is_bound) {
      const TimedPoint& point = points[begin];
      line.rate = std::min(line.rate, lines.back().rate * (line.length / lines.back().length));
      line.start = point.seconds - point.tokens * line.rate;
      line.is_bound = false;  // by its own point
    }
    lines.push_back(line);
    end = begin;
  }
  std::ranges::reverse(lines);
  return lines;
}

ProfileCurve rates_of(const std::vector<LengthLine>& lines, bool is_bound) {
  std::vector<double> x;
  std::vector<double> y;
  for (const LengthLine& line : lines) {
    x.push_back(line.length);
    y.push_back(line.rate);
  }
  return {x, y, ProfileCurve::Below::constant,
          is_bound ? ProfileCurve::Beyond::rate : ProfileCurve::Beyond::slope};
}

}  // namespace

ProfileCurve::ProfileCurve(const std::vector<double>& x, const std::vector<double>& y, Below below,
                           Beyond beyond)
    : below_(below), beyond_(beyond) {
  if (x.empty() || x.size() != y.size()) {
    throw Error(ErrorKind::internal, "expected a curve of at least one value, with one place for each value");
  }
  std::vector<double> weights;
  for (std::size_t i = 0; i < x.size(); ++i) {
    knots_.push_back({x[i], y[i]});
    weights.push_back(1);
    while (knots_.size() > 1 && knots_.back().y < knots_[knots_.size() - 2].y) {
      const CurveKnot last = knots_.back();
      const double weight = weights.back();
      knots_.pop_back();
      weights.pop_back();
      CurveKnot& joined = knots_.back();
      const double total = weights.back() + weight;
      joined.x = (joined.x * weights.back() + last.x * weight) / total;
      joined.y = (joined.y * weights.back() + last.y * weight) / total;
      weights.back() = total;
    }
  }
}

double ProfileCurve::at(double x) const {
  const CurveKnot& first = knots_.front();
  const CurveKnot& last = knots_.back();
  if (x <= first.x) return below_ == Below::constant ? first.y : first.y * (x / first.x);
  if (knots_.size() == 1 || (x > last.x && beyond_ == Beyond::rate)) return last.y * (x / last.x);
  return on_lines(knots_, x);
}

PassCurve::PassCurve(std::span<const TimedPoint> points, bool attention, bool launches)
    : curve_({1}, {0}, ProfileCurve::Below::constant) {
  const double bound = bound_of(points, launches);
  if (!attention) {
    curve_ = curve_of_tokens(points, bound);
    return;
  }
  const std::vector<LengthLine> lines = lines_of(points, bound);
  for (const LengthLine& line : lines) starts_.push_back({line.length, line.start});
  curve_ = rates_of(lines, launches);
}

Seconds PassCurve::at(double tokens, double length) const {
  if (starts_.empty()) return Seconds(curve_.at(tokens));
  const double within = std::clamp(length, starts_.front().x, starts_.back().x);
  return Seconds(tokens * curve_.at(length) + on_lines(starts_, within));
}

}  // namespace dflop
