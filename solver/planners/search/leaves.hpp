// Leaves are the single plans that the planner "search" runs, in groups that differ in the cut of layers
// alone.
#pragma once

#include <cstddef>
#include <optional>
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
  PlanScore score{};                    ///< under LPT
  std::optional<double> objective_s{};  ///< of all iterations
  bool varied = false;                  ///< its variations were run

  bool run() const { return !score.fits || !score.iterations.empty(); }
  bool fits() const { return score.fits; }
  double first_s() const { return score.iterations.front().count(); }
};

/// A CutGroup has the plans of a family that differ in the cut of their layers alone.
struct CutGroup {
  std::size_t family = 0;
  double bound_s = 0;    ///< of every cut
  bool whole = false;    ///< every cut that may fit is a leaf
  int refits = 0;        ///< cuts that were made as others did not fit
  bool climbed = false;  ///< layers of its best plan were moved
  std::vector<std::size_t> leaves = {};
};

/// A MadeGroup is a group whose leaves have no places yet.
struct MadeGroup {
  CutGroup group;
  std::vector<Leaf> leaves;
};

/// A LeafMaker makes and bounds leaves. It is safe to use from several threads.
class LeafMaker {
 public:
  LeafMaker(const PlanRequest& request, const SearchSpace& space, const SearchBounds& bounds)
      : request_(request), space_(space), bounds_(bounds) {}

  Leaf leaf_of(Plan plan, std::size_t family, double family_bound_s) const;

  /// Makes the groups of plans of one family whose layers are cut evenly.
  std::vector<MadeGroup> groups_of(const std::vector<Plan>& balanced, std::size_t family,
                                   double family_bound_s) const;

  /// Returns the most even cut that is expected to need no more than `limit`; nothing where there is none.
  std::optional<Plan> cut_within(const Plan& plan, Bytes limit) const;

 private:
  /// Makes a group without its bound: with all cuts where these are few, else with the even one, the one by
  /// count, and where the even one is expected to need too much memory the most even one that is not.
  MadeGroup group_of(const Plan& balanced, std::size_t family, double family_bound_s) const;

  const PlanRequest& request_;
  const SearchSpace& space_;
  const SearchBounds& bounds_;
};

}  // namespace dflop
