// The joint planner looks into families of plans: all plans of one kind together, in the order of their
// estimates and of their bounds.
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

/// Estimates of plans that are expected not to fit are multiplied by this.
inline constexpr double kTooLarge = 10;

/// A PlanFamily has all plans of one shape, recomputation and count of microbatches. The plainest variant is
/// made first, the others if that does well or if nothing that fits is known to have a smaller bound.
struct PlanFamily {
  double bound_s = 0;
  double estimate_s = 0;
  std::int32_t shape = 0;
  Recomputation recomputation = Recomputation::none;
  std::int32_t microbatches = 1;
  bool begun = false;  ///< the plainest variant is made
  bool whole = false;  ///< all variants are made
};

/// PlanFamilies are the families of a space. Each is given out once by its estimate and once by its bound,
/// the smallest first.
class PlanFamilies {
 public:
  /// Prices all families of a space. Those that fit under no assignment are left out and told to `closest`.
  PlanFamilies(const PlanRequest& request, const SearchSpace& space, SearchBounds& bounds,
               ClosestMiss& closest);

  PlanFamily& operator[](std::size_t family) { return families_[family]; }
  const PlanFamily& operator[](std::size_t family) const { return families_[family]; }

  /// Adds a family of the caller's own, which is never given out; returns its place.
  std::size_t add(const PlanFamily& family);

  /// Returns at most `count` families that are not begun and whose bound is below `below_s`; others on the
  /// way are left out for good.
  std::vector<std::size_t> next_by_estimate(std::size_t count, double below_s);

  /// Returns at most `count` families, up to the first whose bound is not below `below_s`.
  std::vector<std::size_t> next_by_bound(std::size_t count, double below_s);

  /// Returns how many were looked at in each order.
  std::pair<std::size_t, std::size_t> looked_at() const { return {next_by_estimate_, next_by_bound_}; }

  /// Returns the smallest bound of the families that are not whole; the largest double where all are.
  double open_bound() const;

 private:
  std::vector<PlanFamily> families_;
  std::vector<std::size_t> by_estimate_;  // rising
  std::vector<std::size_t> by_bound_;     // rising
  std::size_t next_by_estimate_ = 0;
  std::size_t next_by_bound_ = 0;
};

}  // namespace dflop
