#include "solver/planners/search/planner.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "solver/plan_problem/trial.hpp"
#include "solver/planners/search/plan_search.hpp"

namespace dflop {
namespace {

constexpr double kNothingKnown = std::numeric_limits<double>::max();

/// Returns a bound on the plans of both parts of a search space. A part that was searched completely and has
/// no plan needs no bound. A part that was not searched completely and has no bound may have any plan.
std::optional<Seconds> joined_bound(const PlanResult& first, const PlanResult& second) {
  const auto unknown = [](const PlanResult& part) { return !part.bound && !(part.exhausted && !part.plan); };
  if (unknown(first) || unknown(second)) return {};
  if (!first.bound || !second.bound) return first.bound ? first.bound : second.bound;
  return std::min(*first.bound, *second.bound);
}

/// Combines the results of two parts of a search space. If neither has a plan, the first says why.
PlanResult joined(PlanResult first, PlanResult second, const PlanRequest& request) {
  const std::optional<Seconds> bound = joined_bound(first, second);
  if (second.plan && (!first.plan || second.objective < first.objective)) std::swap(first, second);
  first.candidates += second.candidates;
  first.exhausted = first.exhausted && second.exhausted;
  if (!first.plan) return first;
  first.bound = bound;
  first.best.insert(first.best.end(), second.best.begin(), second.best.end());
  std::ranges::stable_sort(first.best.begin() + 1, first.best.end(), {}, &RankedPlan::objective);
  if (first.best.size() > static_cast<std::size_t>(request.search.listed))
    first.best.resize(request.search.listed);
  return first;
}

}  // namespace

/// Searches shared plans after all others, so that these are found as if there were no shared plans.
PlanResult SearchPlanner::plan(const PlanRequest& request) const {
  check_batches(request);
  if (looks_for_shared_alone(request)) return search_part(request, SpacePart::shared, kNothingKnown);
  const bool shared = !SearchSpace(request, SpacePart::shared).is_empty();
  PlanRequest others = request;
  if (shared && request.search.time_limit)
    others.search.time_limit = *request.search.time_limit * (kBudgetOfShared - 1.0) / kBudgetOfShared;
  // A bound proven for only one part does not bound plans of the other.
  if (shared && request.improved)
    others.improved = [&](Seconds objective, std::optional<Seconds>) { request.improved(objective, {}); };
  PlanResult found = search_part(others, SpacePart::unshared, kNothingKnown);
  if (!shared) return found;
  PlanRequest rest = request;
  if (request.improved) {
    rest.improved = [&](Seconds objective, std::optional<Seconds> bound) {
      if (found.bound && bound) request.improved(objective, std::min(*found.bound, *bound));
    };
  }
  if (request.search.time_limit) rest.search.time_limit = *request.search.time_limit / kBudgetOfShared;
  PlanResult more =
      search_part(rest, SpacePart::shared, found.plan ? found.objective.count() : kNothingKnown);
  const int given = static_cast<int>(std::ranges::count(request.search.seeds, kGivenSeed, &Plan::planner));
  const int outside = std::max(0, found.seeds_outside + more.seeds_outside - given);
  PlanResult both = joined(std::move(found), std::move(more), request);
  both.seeds_outside = outside;
  return both;
}

}  // namespace dflop
