// SearchPlanner is the joint planner: it chooses layout, parallelism, layers, microbatches, pipeline order
// and recomputation at once.
#pragma once

#include "core/iteration/planner.hpp"

namespace dflop {

/// A SearchPlanner prices all shapes, recomputations and counts of microbatches of
/// solver/planners/search/space.hpp by the bounds and estimates of solver/planners/search/bound.hpp. Of those
/// with the smallest estimate the plainest plan is made and run on the first iteration with LPT microbatches;
/// the best of these get all orders, layer splits and placements, and the best plans run all iterations.
/// Meanwhile those with the smallest bound are looked into for the proof. The best in the end are scheduled
/// by SearchOptions::scheduler within memory, and count with what that gains over LPT.
///
/// The plan of solver/planners/expected/planner.hpp is run first, though its count of microbatches may be
/// none of the space.
///
/// A plan fits if with LPT microbatches no rank needs more memory than a GPU has in any iteration that was
/// run; one that would fit with others only is not of the space. Plans are given up when their bound is no
/// smaller than the objective of one that fits, when some rank needs too much memory under any assignment, or
/// when they do not fit on being run.
///
/// PlanResult::bound is the smallest bound of all plans that were not found not to fit, run or not: no plan
/// of the space that fits, under any assignment of the samples to microbatches, has a smaller objective.
/// PlanResult::gap() is thus proven whatever the scheduler and whenever the search ended.
///
/// Ends when no open bound is below the best objective, after SearchOptions::budget simulated instructions,
/// or at the time limit (five times these while nothing fits); the seeds are run beside the budget, and
/// beside a time limit the one that is running when it ends. Without the latter the same request gives the
/// same result, whatever the number of threads.
class SearchPlanner final : public Planner {
 public:
  std::string_view name() const override { return "search"; }

  /// @throws Error (input) unless there is at least one batch and each has gbs samples; Error (usage) for an
  /// unknown scheduler.
  PlanResult plan(const PlanRequest& request) const override;
};

}  // namespace dflop
