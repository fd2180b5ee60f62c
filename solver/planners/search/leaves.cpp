#include "solver/planners/search/leaves.hpp"

#include <algorithm>
#include <utility>

#include "solver/planners/search/cuts.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kAllCuts = 32;  // groups with at most this many cuts make all of them

/// Returns the smallest bound of groups that are not whole, and of leaves of whole groups for which `counts`
/// is true.
template <typename Counts>
double least_bound(std::span<const CutGroup> groups, std::span<const Leaf> leaves, const Counts& counts) {
  double bound = std::numeric_limits<double>::max();
  for (const CutGroup& group : groups) {
    if (!group.whole) bound = std::min(bound, group.bound_s);
    for (const std::size_t i : group.leaves) {
      if (group.whole && counts(leaves[i])) bound = std::min(bound, leaves[i].floor.bound_s);
    }
  }
  return bound;
}

}  // namespace

double smallest_bound(std::span<const CutGroup> groups, std::span<const Leaf> leaves) {
  return least_bound(groups, leaves, [](const Leaf&) { return true; });
}

double settled_bound(std::span<const CutGroup> groups, std::span<const Leaf> leaves) {
  return least_bound(groups, leaves, [](const Leaf& leaf) { return leaf.run() && leaf.fits(); });
}

Leaf LeafMaker::leaf_of(Plan plan, std::size_t family, double family_bound_s) const {
  PlanFloor floor = bounds_.plan_floor(plan);
  floor.bound_s = std::max(floor.bound_s, family_bound_s);
  return {std::move(plan), family, 0, floor};
}

std::vector<MadeGroup> LeafMaker::groups_of(const std::vector<Plan>& balanced, std::size_t family,
                                            double family_bound_s) const {
  std::vector<MadeGroup> groups;
  for (const Plan& plan : balanced) {
    groups.push_back(group_of(plan, family, family_bound_s));
    CutGroup& group = groups.back().group;
    if (group.whole) continue;
    // The first plan with the same bound may be this one.
    std::size_t alike = 0;
    while (!SearchBounds::have_one_cuts_bound(plan, balanced[alike])) ++alike;
    group.bound_s = alike + 1 < groups.size() ? groups[alike].group.bound_s
                                              : std::max(family_bound_s, bounds_.cuts_bound(plan));
  }
  return groups;
}

MadeGroup LeafMaker::group_of(const Plan& balanced, std::size_t family, double family_bound_s) const {
  MadeGroup made{.group = {.family = family}, .leaves = {}};
  made.group.whole = count_cuts(balanced, request_.model, kAllCuts + 1) <= kAllCuts;
  std::vector<Plan> plans = {balanced};  // of equal ones the first is kept
  const auto add = [&](Plan plan) {
    if (std::ranges::find(plans, plan) == plans.end()) plans.push_back(std::move(plan));
  };
  if (made.group.whole) {
    for (Plan& plan : all_cuts(balanced, request_.model)) add(std::move(plan));
  } else {
    add(space_.cut_by_count(balanced));
  }
  for (Plan& plan : plans) made.leaves.push_back(leaf_of(std::move(plan), family, family_bound_s));
  const Bytes usable = request_.cluster.gpu.usable_memory();
  const PlanFloor even = made.leaves.front().floor;
  const auto add_fitted = [&](bool further) {
    const std::optional<Plan> fitted = cut_within(balanced, usable, further);
    if (fitted && std::ranges::find(made.leaves, *fitted, &Leaf::plan) == made.leaves.end())
      made.leaves.push_back(leaf_of(*fitted, family, family_bound_s));
  };
  if (!made.group.whole && even.expected_memory > usable) add_fitted(false);
  if (!made.group.whole && even.hard_memory > usable) add_fitted(true);
  return made;
}

std::optional<Plan> LeafMaker::cut_within(const Plan& plan, Bytes limit, bool further) const {
  return space_.cut(plan, [&](int s, const Stage& stage) {
    return bounds_.expected_memory(plan, s, stage, further) <= limit;
  });
}

}  // namespace dflop
