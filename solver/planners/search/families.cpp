#include "solver/planners/search/families.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/support/parallel.hpp"

namespace dflop {
namespace {

constexpr std::size_t kPricedTogether = 64;  // shapes

}  // namespace

PlanFamilies::PlanFamilies(const PlanRequest& request, const SearchSpace& space, SearchBounds& bounds,
                           ClosestMiss& closest) {
  const std::size_t shapes = space.shapes().size();
  struct Priced {
    std::vector<PlanFamily> families;
    ClosestMiss closest;
  };
  std::vector<Priced> parts((shapes + kPricedTogether - 1) / kPricedTogether);
  parallel_for(parts.size(), [&](std::size_t p) {
    SearchBounds own = bounds;  // a copy, because SearchBounds cache results
    const std::size_t end = std::min(shapes, (p + 1) * kPricedTogether);
    for (std::size_t s = p * kPricedTogether; s < end; ++s)
      price_shape(request, space, own, s, parts[p].families, parts[p].closest);
  });
  for (const Priced& part : parts) {
    families_.insert(families_.end(), part.families.begin(), part.families.end());
    closest.add(part.closest);
  }
  by_estimate_.all = rising(&PlanFamily::estimate_s);
  by_bound_.all = rising(&PlanFamily::bound_s);
  for (const std::size_t f : by_estimate_.all) {
    const Layout layout = space.shapes()[families_[f].shape].layout;
    by_stratum_[stratum_of(layout, families_[f].recomputation)].all.push_back(f);
  }
}

std::vector<std::size_t> PlanFamilies::next_by_estimate(std::size_t count, std::size_t of_each,
                                                        double below_s) {
  std::vector<std::size_t> next;
  const auto take = [&](Queue& queue, std::size_t most) {
    for (std::size_t taken = 0; taken < most && queue.next < queue.all.size();) {
      PlanFamily& family = families_[queue.all[queue.next++]];
      if (family.begun || family.given || family.bound_s >= below_s) continue;
      family.given = true;
      next.push_back(queue.all[queue.next - 1]);
      ++taken;
    }
  };
  take(by_estimate_, count);
  for (Queue& queue : by_stratum_) take(queue, of_each);
  return next;
}

std::vector<std::size_t> PlanFamilies::next_by_bound(std::size_t count, double below_s) {
  std::vector<std::size_t> next;
  while (next.size() < count && by_bound_.next < by_bound_.all.size()) {
    const std::size_t f = by_bound_.all[by_bound_.next];
    if (families_[f].bound_s >= below_s) break;
    ++by_bound_.next;
    next.push_back(f);
  }
  return next;
}

void PlanFamilies::price_shape(const PlanRequest& request, const SearchSpace& space, SearchBounds& bounds,
                               std::size_t s, std::vector<PlanFamily>& families, ClosestMiss& closest) {
  const Bytes usable = request.cluster.gpu.usable_memory();
  const SearchShape& shape = space.shapes()[s];
  for (const int m : space.microbatches(shape)) {
    for (const Recomputation recomputation : space.recomputations()) {
      const PlanFloor floor = bounds.shape_floor(shape, recomputation, m);
      if (floor.memory <= usable) {
        const double estimate = floor.estimate_s * (floor.expected_memory > usable ? kTooLarge : 1);
        families.push_back({floor.bound_s, estimate, static_cast<std::int32_t>(s), recomputation, m});
      } else if (closest.is_closer(floor.memory)) {
        if (const auto plan = space.plan(shape, recomputation, m, SearchVariant{}))
          closest.add(*plan, floor.memory);
      }
    }
  }
}

std::vector<std::size_t> PlanFamilies::rising(double PlanFamily::*member) const {
  std::vector<std::pair<double, std::size_t>> keys;
  keys.reserve(families_.size());
  for (std::size_t f = 0; f < families_.size(); ++f) keys.emplace_back(families_[f].*member, f);
  std::ranges::sort(keys);
  std::vector<std::size_t> order;
  order.reserve(keys.size());
  for (const auto& [key, family] : keys) order.push_back(family);
  return order;
}

}  // namespace dflop
