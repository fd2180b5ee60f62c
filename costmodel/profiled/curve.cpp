#include "costmodel/profiled/curve.hpp"

#include <algorithm>
#include <cstddef>

#include "core/error.hpp"

namespace dflop {

ProfileCurve::ProfileCurve(const std::vector<double>& x, const std::vector<double>& y, Below below)
    : below_(below) {
  if (x.empty() || x.size() != y.size()) {
    throw Error(ErrorKind::internal, "a curve has as many places as values, and at least one");
  }
  std::vector<double> weights;
  for (std::size_t i = 0; i < x.size(); ++i) {
    knots_.push_back({x[i], y[i]});
    weights.push_back(1);
    while (knots_.size() > 1 && knots_.back().y < knots_[knots_.size() - 2].y) {
      const Knot last = knots_.back();
      const double weight = weights.back();
      knots_.pop_back();
      weights.pop_back();
      Knot& joined = knots_.back();
      const double total = weights.back() + weight;
      joined.x = (joined.x * weights.back() + last.x * weight) / total;
      joined.y = (joined.y * weights.back() + last.y * weight) / total;
      weights.back() = total;
    }
  }
}

double ProfileCurve::at(double x) const {
  const Knot& first = knots_.front();
  if (x <= first.x) return below_ == Below::constant ? first.y : first.y * (x / first.x);
  if (knots_.size() == 1) return first.y * (x / first.x);
  const auto next =
      std::find_if(knots_.begin() + 1, knots_.end() - 1, [&](const Knot& k) { return x <= k.x; });
  const Knot& a = *(next - 1);
  const Knot& b = *next;
  return x == b.x ? b.y : a.y + (b.y - a.y) * ((x - a.x) / (b.x - a.x));
}

}  // namespace dflop
