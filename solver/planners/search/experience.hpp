// PlanExperience learns, from the plans that the planner "search" has run, which other plans are promising.
#pragma once

#include <map>
#include <tuple>

#include "solver/planners/search/families.hpp"
#include "solver/planners/search/leaves.hpp"

namespace dflop {

/// A PlanExperience has, for each kind of plan (layout, order and recomputation), the mean factors by which
/// plans were slower or larger than expected.
class PlanExperience {
 public:
  /// Learns from a leaf that has run.
  void learn(const Leaf& leaf) {
    Seen& seen = seen_[kind_of(leaf.plan)];
    seen.memory.add(static_cast<double>(leaf.floor.memory.count) /
                    static_cast<double>(leaf.floor.expected_memory.count));
    if (leaf.fits() && leaf.floor.estimate_s > 0) seen.time.add(leaf.first_s() / leaf.floor.estimate_s);
  }

  /// Returns the expected time of a leaf's plan. If the plan is not expected to fit, multiplies the time by
  /// kTooLarge.
  double promise(const Leaf& leaf, Bytes usable) const {
    const auto found = seen_.find(kind_of(leaf.plan));
    const Seen seen = found == seen_.end() ? Seen{} : found->second;
    const double memory = static_cast<double>(leaf.floor.expected_memory.count) * seen.memory.mean();
    const bool fits = memory <= static_cast<double>(usable.count);
    return leaf.floor.estimate_s * seen.time.mean() * (fits ? 1.0 : kTooLarge);
  }

 private:
  struct Ratio {
    double sum = 1;
    double count = 1;

    void add(double ratio) {
      sum += ratio;
      count += 1;
    }
    double mean() const { return sum / count; }
  };
  struct Seen {
    Ratio time;
    Ratio memory;
  };
  using Kind = std::tuple<Layout, OrderKind, Recomputation>;

  static Kind kind_of(const Plan& plan) { return {plan.layout, plan.order, plan.recomputation}; }

  std::map<Kind, Seen> seen_;
};

}  // namespace dflop
