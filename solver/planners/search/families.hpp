// What the joint planner looks into: all plans of one kind together, in the order of their estimates and of
// their bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/search/bound.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// On estimates of plans that are expected not to fit.
inline constexpr double kTooLarge = 10;

/// All plans of one shape, recomputation and count of microbatches. The plainest variant is made first, the
/// others if that does well or if nothing that fits is known to have a smaller bound.
struct PlanFamily {
  double bound_s = 0;
  double estimate_s = 0;
  std::int32_t shape = 0;
  Recomputation recomputation = Recomputation::none;
  std::int32_t microbatches = 1;
  bool begun = false;  ///< the plainest variant is made
  bool whole = false;  ///< all variants are made
};

/// The families of a space. Each is given out once by its estimate and once by its bound, the smallest first.
class PlanFamilies {
 public:
  /// Prices all of a space. Those that fit under no assignment are left out; `closest` is told of them.
  PlanFamilies(const PlanRequest& request, const SearchSpace& space, SearchBounds& bounds,
               ClosestMiss& closest);

  PlanFamily& operator[](std::size_t family) { return families_[family]; }
  const PlanFamily& operator[](std::size_t family) const { return families_[family]; }

  /// Adds one of the caller's own, which is never given out; returns its place.
  std::size_t add(const PlanFamily& family);

  /// At most `count` that are not begun and whose bound is below `below_s`; others on the way are left out
  /// for good.
  std::vector<std::size_t> next_by_estimate(std::size_t count, double below_s);

  /// At most `count`, up to the first whose bound is not below `below_s`.
  std::vector<std::size_t> next_by_bound(std::size_t count, double below_s);

  /// How many were looked at in each order.
  std::pair<std::size_t, std::size_t> looked_at() const { return {next_by_estimate_, next_by_bound_}; }

  /// The smallest bound of those that are not whole; the largest double where all are.
  double open_bound() const;

 private:
  std::vector<PlanFamily> families_;
  std::vector<std::size_t> by_estimate_;  // rising
  std::vector<std::size_t> by_bound_;     // rising
  std::size_t next_by_estimate_ = 0;
  std::size_t next_by_bound_ = 0;
};

}  // namespace dflop
