// SearchPlanner is the joint planner: it chooses layout, parallelism, layers, microbatches, pipeline order
// and recomputation together.
#pragma once

#include "core/iteration/planner.hpp"

namespace dflop {

/// A SearchPlanner prices all families (solver/planners/search/families.hpp) of its search space
/// (solver/planners/search/space.hpp) by bounds and estimates (solver/planners/search/bound.hpp). For the
/// families with the smallest estimates, it makes the plainest plan and runs it on the first iteration with
/// LPT microbatches. The best of these families are tried with all orders and placements, and the best plans
/// run all iterations. Meanwhile it also explores the families with the smallest bounds, to prove a better
/// bound. At the end, SearchOptions::scheduler schedules the best plans within memory, and they are ranked by
/// the result.
///
/// The layers of a plan are cut evenly by time, and evenly by count. If the cut by time is expected not to
/// fit, or does not fit when it is run, they are also cut as evenly as memory permits. From the best of these
/// cuts, the search moves one layer at a time to a neighboring stage as long as that helps. It does so again
/// at the end, with the scheduler that made the result's microbatches. So no single move within memory
/// improves the result, unless a time limit ended the search. If a plan has few cuts, all are considered.
///
/// The plan of solver/planners/expected/planner.hpp is run first, even if its number of microbatches is not
/// in the search space.
///
/// Plans are discarded when their bound is not below the objective of a plan that fits, when some rank needs
/// too much memory under any assignment, or when they do not fit with LPT microbatches.
///
/// PlanResult::bound is the smallest bound of all plans that may fit, run or not: no plan of the search space
/// that fits, with any cut of its layers and any assignment of samples to microbatches, has a smaller
/// objective. So PlanResult::gap() is proven whatever the scheduler and whenever the search ended.
///
/// The search ends when no open bound is below the best objective, after SearchOptions::budget simulated
/// instructions, or at the time limit. While no plan fits, the budget and the time limit are five times as
/// large. The seeds and the moves of the result's layers do not count toward the budget. A seed that is
/// running at the time limit may finish. Without a time limit the same request gives the same result,
/// whatever the number of threads.
class SearchPlanner final : public Planner {
 public:
  std::string_view name() const override { return "search"; }

  /// @throws Error (input) unless there is at least one batch and each has gbs samples; Error (usage) for an
  /// unknown scheduler.
  PlanResult plan(const PlanRequest& request) const override;
};

}  // namespace dflop
