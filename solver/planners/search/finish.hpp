// The best plans of the planner "search" are finished: filled by the scheduler asked for, with the gradient
// buckets that are best, and with single layers moved until no move helps.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/scheduler.hpp"
#include "solver/planners/search/bound.hpp"
#include "solver/planners/search/leaves.hpp"

namespace dflop {

/// A PlanFinisher finishes plans of one search. It is safe to use from several threads.
class PlanFinisher {
 public:
  /// Takes a request and bounds that outlive it.
  PlanFinisher(const PlanRequest& request, const SearchBounds& bounds);

  /// LPT fills all plans that are run before the last ones.
  const Scheduler& lpt() const { return *lpt_; }
  bool looks_further_than_lpt() const { return asked_for_->name() != lpt_->name(); }

  /// Returns the memory that a plan needs in one of the hardest further batches that does not fit, filled by
  /// filler_for() the scheduler.
  std::optional<Bytes> overrun_of(const Plan& plan, const Scheduler& scheduler) const;

  /// Returns the same of the given further batches.
  std::optional<Bytes> overrun_of(const Plan& plan, const Scheduler& scheduler,
                                  std::span<const Batch> further) const;

  /// Puts the plan to choose first: the best that fits all further batches, or one that takes a little longer
  /// and fits them with memory to spare. Takes away the plans before it that do not fit, which may be all;
  /// the next after one of these are finished, too.
  void put_choice_first(std::vector<RankedPlan>& plans, const std::function<bool()>& is_late) const;

  /// Returns a leaf as it was run under LPT.
  /// @pre it has an objective
  RankedPlan as_run(const Leaf& leaf) const;

  /// Returns a leaf with the gradient buckets that are best, and under the scheduler asked for where that is
  /// better and fits.
  /// @pre as as_run()
  RankedPlan finished(const Leaf& leaf) const;

  /// Returns a plan under the scheduler asked for, within memory; nothing where it does not fit.
  std::optional<RankedPlan> filled(const Plan& plan) const;

  /// Returns a plan with random microbatches, with which the baselines choose; nothing where it does
  /// not fit.
  std::optional<RankedPlan> filled_at_random(const Plan& plan) const;

  /// Moves layers of a plan between neighboring stages, one at a time, until no such move makes it better
  /// within memory under the scheduler that has made its microbatches, or it is too late. Returns nothing
  /// where no move does. `left` is less by about the instructions that this simulates.
  std::optional<RankedPlan> with_layers_moved(const RankedPlan& plan, const std::function<bool()>& is_late,
                                              std::int64_t& left) const;

  /// Moves layers under LPT first, which shows in less time where many of them ought to go, and then under
  /// the scheduler that has made the plan's microbatches, unless it does worse than LPT by then.
  std::optional<RankedPlan> with_layers_moved_twice(const RankedPlan& plan,
                                                    const std::function<bool()>& is_late,
                                                    std::int64_t& left) const;

  /// Returns about how many instructions finished() simulates for a plan, in the unit of a search's budget.
  std::int64_t instructions_to_finish(const Plan& plan) const;

 private:
  std::int64_t instructions_to_run(const Plan& plan) const;
  bool fits_all(const RankedPlan& plan, Bytes limit) const;
  std::optional<Bytes> overrun_within(const Plan& plan, const Scheduler& scheduler,
                                      std::span<const Batch> further, Bytes limit) const;
  void finish_next(std::vector<RankedPlan>& plans) const;
  RankedPlan ranked(const Plan& plan, Seconds bound, const PlanScore& score,
                    const Scheduler& scheduler) const;
  ScheduleLimits final_limits() const;
  void take_better(RankedPlan& best, const Plan& plan, const Scheduler& scheduler,
                   const ScheduleLimits& limits) const;

  const PlanRequest& request_;
  const SearchBounds& bounds_;
  std::unique_ptr<Scheduler> lpt_;
  std::unique_ptr<Scheduler> random_;
  std::unique_ptr<Scheduler> asked_for_;
};

}  // namespace dflop
