// Leaves are the single plans that the planner "search" runs. Leaves that differ only in the cut of layers
// form a group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/planners/search/bound.hpp"
#include "solver/planners/search/score.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// A Leaf is a single plan.
struct Leaf {
  Plan plan;
  std::size_t family = 0;
  std::size_t group = 0;
  PlanFloor floor;
  PlanScore score{};                    ///< with LPT
  std::optional<double> objective_s{};  ///< over all iterations
  bool varied = false;                  ///< SearchSpace::variations() of it were run
  double limit = 0;                     ///< bytes of memory that its cut was made for; 0: no limit

  bool run() const { return !score.fits || !score.iterations.empty(); }
  bool fits() const { return score.fits; }
  double first_s() const { return score.iterations.front().count(); }
};

/// A CutGroup has the plans of a family that differ only in the cut of their layers.
struct CutGroup {
  std::size_t family = 0;
  double bound_s = 0;  ///< over every cut
  bool whole = false;  ///< every cut that may fit is a leaf
  int refits = 0;      ///< number of cuts that were made because others did not fit
  /// A cut made for `overrun_limit` bytes or more does not fit. One made for `fitting_limit` or less fits, or
  /// is too uneven to be useful.
  double overrun_limit = std::numeric_limits<double>::max();
  double fitting_limit = 0;
  bool climbed = false;  ///< layers of its best plan were moved
  std::vector<std::size_t> leaves = {};

  bool has_overrun() const { return overrun_limit < std::numeric_limits<double>::max(); }

  /// Narrows the limits by a leaf that has run.
  void narrow_limits(const Leaf& leaf, double usable) {
    const auto expected = static_cast<double>(leaf.floor.expected_memory.count);
    if (leaf.fits()) {
      fitting_limit = std::max(fitting_limit, leaf.limit);
    } else {
      overrun_limit = std::min(overrun_limit, leaf.limit > 0 ? leaf.limit : std::min(usable, expected));
    }
    if (fitting_limit >= overrun_limit) fitting_limit = 0;  // it fitted only fewer batches
  }
};

/// A MadeGroup is a group whose leaves have no indices yet.
struct MadeGroup {
  CutGroup group;
  std::vector<Leaf> leaves;
};

/// Returns the smallest bound of the groups' plans. A whole group has the bounds of its leaves; any other
/// group has its own bound.
double smallest_bound(std::span<const CutGroup> groups, std::span<const Leaf> leaves);

/// Returns the smallest bound of the groups' plans that will not rise any more: the bound of a group that is
/// not whole, or of a leaf of a whole group that has run and fits. Raising larger bounds would prove nothing
/// more.
double settled_bound(std::span<const CutGroup> groups, std::span<const Leaf> leaves);

/// A LeafMaker makes and bounds leaves. Several threads may use it at once.
class LeafMaker {
 public:
  LeafMaker(const PlanRequest& request, const SearchSpace& space, const SearchBounds& bounds)
      : request_(request), space_(space), bounds_(bounds) {}

  Leaf leaf_of(Plan plan, std::size_t family, double family_bound_s) const;

  /// Makes a group for each of these plans of one family, whose layers are cut evenly.
  std::vector<MadeGroup> groups_of(const std::vector<Plan>& balanced, std::size_t family,
                                   double family_bound_s) const;

  /// Returns the plan with the most even cut that is expected to need at most `limit` (with `further`, also
  /// in the hardest further batches); nullopt if there is none.
  std::optional<Plan> cut_within(const Plan& plan, Bytes limit, bool further) const;

 private:
  /// Makes a group without its bound. The group has all cuts if these are few. Otherwise it has the even cut,
  /// the cut by count and, if the even cut is expected to need too much memory, the most even cut that fits.
  MadeGroup group_of(const Plan& balanced, std::size_t family, double family_bound_s) const;

  const PlanRequest& request_;
  const SearchSpace& space_;
  const SearchBounds& bounds_;
};

}  // namespace dflop
