// A PlanFinisher improves the best plans of the planner "search": it fills them with the requested scheduler,
// picks the best gradient buckets, and moves single layers until no move helps.
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

/// A PlanFinisher finishes plans of one search. Several threads may use it at once.
class PlanFinisher {
 public:
  /// The request and bounds must outlive this object.
  PlanFinisher(const PlanRequest& request, const SearchBounds& bounds);

  /// Returns the LPT scheduler, which fills the bins of all plans before the final ones.
  const Scheduler& lpt() const { return *lpt_; }
  bool looks_further_than_lpt() const { return asked_for_->name() != lpt_->name(); }

  /// Returns the memory that a plan needs in the first of the hardest further batches that does not fit;
  /// nullopt if all fit. The scheduler filler_for(scheduler) fills the bins.
  std::optional<Bytes> overrun_of(const Plan& plan, const Scheduler& scheduler) const;

  /// Returns the memory that a plan needs in the first batch of `further` that does not fit; nullopt if all
  /// fit. The scheduler filler_for(scheduler) fills the bins.
  std::optional<Bytes> overrun_of(const Plan& plan, const Scheduler& scheduler,
                                  std::span<const Batch> further) const;

  /// Puts the plan to choose first: the best that fits all further batches, or a slightly slower one that
  /// fits them with memory to spare. Removes plans from the front until one fits, which may remove all. After
  /// each of the first three removals, fills the next plans with the requested scheduler, if they still have
  /// LPT's microbatches.
  void put_choice_first(std::vector<RankedPlan>& plans, const std::function<bool()>& is_late) const;

  /// Returns the results of a leaf's run with LPT.
  /// @pre the leaf has an objective
  RankedPlan as_run(const Leaf& leaf) const;

  /// Returns the results of a leaf's plan with the best gradient buckets, and with the requested scheduler if
  /// that is better and fits.
  /// @pre the leaf has an objective
  RankedPlan finished(const Leaf& leaf) const;

  /// Runs a plan with the requested scheduler, within memory. Returns nullopt if it does not fit.
  std::optional<RankedPlan> filled(const Plan& plan) const;

  /// Runs a plan with random microbatches, by which the baselines choose plans. Returns nullopt if it does
  /// not fit.
  std::optional<RankedPlan> filled_at_random(const Plan& plan) const;

  /// Moves layers of a plan between neighboring stages, one at a time, until no move improves it or it is too
  /// late. A moved plan must fit into memory, and uses the scheduler that made the plan's microbatches.
  /// Returns nullopt if no move improves the plan. Subtracts about the number of simulated instructions from
  /// `left`.
  std::optional<RankedPlan> with_layers_moved(const RankedPlan& plan, const std::function<bool()>& is_late,
                                              std::int64_t& left) const;

  /// Moves layers like with_layers_moved(), but first with LPT, which finds many needed moves in less time.
  /// Then it continues with the scheduler that made the plan's microbatches, unless LPT is better by then.
  std::optional<RankedPlan> with_layers_moved_twice(const RankedPlan& plan,
                                                    const std::function<bool()>& is_late,
                                                    std::int64_t& left) const;

  /// Returns about the number of instructions that finished() simulates for a plan, in the unit of a search's
  /// budget.
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
