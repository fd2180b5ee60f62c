// SearchPlanner is the joint planner: it chooses layout, parallelism, layers, microbatches, pipeline order
// and recomputation at once.
#pragma once

#include "core/iteration/planner.hpp"

namespace dflop {

/// A SearchPlanner prices all shapes, recomputations and counts of microbatches of
/// solver/planners/search/space.hpp by the bounds and estimates of solver/planners/search/bound.hpp. Of those
/// with the smallest estimate the plainest plan is made and run on the first iteration with LPT microbatches;
/// the best of these get all orders and placements, and the best plans run all iterations. Meanwhile those
/// with the smallest bound are looked into for the proof. The best in the end are scheduled by
/// SearchOptions::scheduler within memory, and count with what that gains over LPT.
///
/// The layers of a plan are cut evenly by time, and by count; where the former is expected not to fit, or
/// does not when it is run, they are also cut as evenly as the memory lets them. From the best of these the
/// search moves one layer at a time to a neighboring stage for as long as that helps. It does so with the
/// result, too, under the scheduler that made its microbatches: no single move makes it better within memory
/// (unless a time limit ended that). Where a plan has few cuts, all are looked at.
///
/// The plan of solver/planners/expected/planner.hpp is run first, though its count of microbatches may be
/// none of the space.
///
/// Plans are given up when their bound is no smaller than the objective of one that fits, when some rank
/// needs too much memory under any assignment, or when they do not fit with LPT microbatches.
///
/// PlanResult::bound is the smallest bound of all plans that may fit, run or not: no plan of the space that
/// fits, with any cut of its layers and under any assignment of the samples to microbatches, has a smaller
/// objective. PlanResult::gap() is thus proven whatever the scheduler and whenever the search ended.
///
/// Ends when no open bound is below the best objective, after SearchOptions::budget simulated instructions,
/// or at the time limit (five times these while nothing fits); the seeds and the moves of the result's layers
/// are run beside the budget, and beside a time limit the seed that is running when it ends. Without the
/// latter the same request gives the same result, whatever the number of threads.
class SearchPlanner final : public Planner {
 public:
  std::string_view name() const override { return "search"; }

  /// @throws Error (input) unless there is at least one batch and each has gbs samples; Error (usage) for an
  /// unknown scheduler.
  PlanResult plan(const PlanRequest& request) const override;
};

}  // namespace dflop
