#include "solver/planners/search/families.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace dflop {

PlanFamilies::PlanFamilies(const PlanRequest& request, const SearchSpace& space, SearchBounds& bounds,
                           ClosestMiss& closest) {
  const Bytes usable = request.cluster.gpu.usable_memory();
  for (std::size_t s = 0; s < space.shapes().size(); ++s) {
    const SearchShape& shape = space.shapes()[s];
    for (const int m : space.microbatches(shape)) {
      for (const Recomputation recomputation : space.recomputations()) {
        const PlanFloor floor = bounds.shape_floor(shape, recomputation, m);
        if (floor.memory > usable) {
          if (const auto plan = space.plan(shape, recomputation, m, SearchVariant{}))
            closest.add(*plan, floor.memory);
          continue;
        }
        const double estimate = floor.estimate_s * (floor.expected_memory > usable ? kTooLarge : 1);
        families_.push_back({floor.bound_s, estimate, static_cast<std::int32_t>(s), recomputation, m});
      }
    }
  }
  by_estimate_.resize(families_.size());
  std::iota(by_estimate_.begin(), by_estimate_.end(), std::size_t{0});
  by_bound_ = by_estimate_;
  const auto rising = [&](auto member) {
    return [this, member](std::size_t a, std::size_t b) {
      return std::tie(families_[a].*member, a) < std::tie(families_[b].*member, b);
    };
  };
  std::sort(by_estimate_.begin(), by_estimate_.end(), rising(&PlanFamily::estimate_s));
  std::sort(by_bound_.begin(), by_bound_.end(), rising(&PlanFamily::bound_s));
}

std::size_t PlanFamilies::add(const PlanFamily& family) {
  families_.push_back(family);
  return families_.size() - 1;
}

std::vector<std::size_t> PlanFamilies::next_by_estimate(std::size_t count, double below_s) {
  std::vector<std::size_t> next;
  while (next.size() < count && next_by_estimate_ < by_estimate_.size()) {
    const std::size_t f = by_estimate_[next_by_estimate_++];
    if (!families_[f].begun && families_[f].bound_s < below_s) next.push_back(f);
  }
  return next;
}

std::vector<std::size_t> PlanFamilies::next_by_bound(std::size_t count, double below_s) {
  std::vector<std::size_t> next;
  while (next.size() < count && next_by_bound_ < by_bound_.size()) {
    const std::size_t f = by_bound_[next_by_bound_];
    if (families_[f].bound_s >= below_s) break;
    ++next_by_bound_;
    next.push_back(f);
  }
  return next;
}

double PlanFamilies::open_bound() const {
  for (std::size_t i = next_by_bound_; i < by_bound_.size(); ++i) {
    const PlanFamily& family = families_[by_bound_[i]];
    if (!family.whole) return family.bound_s;
  }
  return std::numeric_limits<double>::max();
}

}  // namespace dflop
