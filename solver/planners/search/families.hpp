// PlanFamilies are sets of similar plans. The planner "search" chooses among them before it makes single
// plans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/iteration/planner.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/search/bound.hpp"
#include "solver/planners/search/space.hpp"

namespace dflop {

/// The estimated time of a plan that is not expected to fit is multiplied by this.
inline constexpr double kTooLarge = 10;

/// A PlanFamily has all plans of one shape, recomputation and number of microbatches. Its variants differ in
/// order, chunks and placement. The search first makes the plainest variant. It makes the others if that one
/// does well, or if the family's bound is among the smallest open ones.
struct PlanFamily {
  double bound_s = 0;
  double estimate_s = 0;
  std::int32_t shape = 0;
  Recomputation recomputation = Recomputation::none;
  std::int32_t microbatches = 1;
  bool begun = false;  ///< the plainest variant is made
  bool whole = false;  ///< all variants are made
  bool given = false;  ///< next_by_estimate() has returned it
};

/// Strata are the combinations of layout and recomputation. Each stratum gets a share of the search, because
/// only runs show what fits into memory, and the estimates of a whole stratum may be far off.
inline constexpr std::size_t kStrata = 3 * kNames<Layout>.size();

inline std::size_t stratum_of(Layout layout, Recomputation recomputation) {
  return 3 * static_cast<std::size_t>(layout) + static_cast<std::size_t>(recomputation);
}

/// PlanFamilies are the families of a search space. Each family is returned once in order of estimate and
/// once in order of bound, the smallest first.
class PlanFamilies {
 public:
  /// Prices all families of a space. Families that fit under no assignment are left out and reported to
  /// `closest`.
  PlanFamilies(const PlanRequest& request, const SearchSpace& space, SearchBounds& bounds,
               ClosestMiss& closest);

  std::size_t count() const { return families_.size(); }
  PlanFamily& operator[](std::size_t family) { return families_[family]; }
  const PlanFamily& operator[](std::size_t family) const { return families_[family]; }

  /// Adds a family of the caller's own and returns its index. next_by_estimate() and next_by_bound() never
  /// return it.
  std::size_t add(const PlanFamily& family) {
    families_.push_back(family);
    return families_.size() - 1;
  }

  /// Returns families that are not begun and whose bound is below `below_s`: at most `count` of all families,
  /// and then `of_each` of each stratum. Families that a call skips are not considered again in the same
  /// order.
  std::vector<std::size_t> next_by_estimate(std::size_t count, std::size_t of_each, double below_s);

  /// Returns the next families in order of bound: at most `count`, and only families whose bound is below
  /// `below_s`.
  std::vector<std::size_t> next_by_bound(std::size_t count, double below_s);

  /// Returns the number of families that were considered, summed over all orders.
  std::size_t looked_at() const {
    std::size_t count = by_estimate_.next + by_bound_.next;
    for (const Queue& queue : by_stratum_) count += queue.next;
    return count;
  }

  /// Returns the smallest bound of the families that are not whole; the largest double if all are whole.
  double open_bound() const {
    for (std::size_t i = by_bound_.next; i < by_bound_.all.size(); ++i) {
      const PlanFamily& family = families_[by_bound_.all[i]];
      if (!family.whole) return family.bound_s;
    }
    return std::numeric_limits<double>::max();
  }

 private:
  static void price_shape(const PlanRequest& request, const SearchSpace& space, SearchBounds& bounds,
                          std::size_t s, std::vector<PlanFamily>& families, ClosestMiss& closest);

  /// Returns the families in increasing order of a member; ties keep their order. At 1,024 GPUs there are
  /// millions.
  std::vector<std::size_t> rising(double PlanFamily::*member) const;

  /// A Queue has families in increasing order and the position of the next one.
  struct Queue {
    std::vector<std::size_t> all;
    std::size_t next = 0;
  };

  std::vector<PlanFamily> families_;
  Queue by_estimate_;
  Queue by_bound_;
  std::array<Queue, kStrata> by_stratum_;  // by estimate
};

}  // namespace dflop
