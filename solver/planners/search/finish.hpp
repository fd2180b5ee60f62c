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

  /// Returns the LPT scheduler, which fills all plans until the final ones.
  const Scheduler& lpt() const { return *lpt_; }
  bool looks_further_than_lpt() const { return asked_for_->name() != lpt_->name(); }

  /// Returns the memory that a plan needs in one of the hardest further batches that does not fit, filled by
  /// filler_for() the scheduler.
  std::optional<Bytes> overrun_of(const Plan& plan, const Scheduler& scheduler) const;

  /// Returns the same for the given further batches.
  std::optional<Bytes> overrun_of(const Plan& plan, const Scheduler& scheduler,
                                  std::span<const Batch> further) const;

  /// Puts the plan to choose first: the best that fits all further batches, or a slightly slower one that
  /// fits them with memory to spare. Removes the plans before it that do not fit, which may be all plans;
  /// then the next plans are finished, too.
  void put_choice_first(std::vector<RankedPlan>& plans, const std::function<bool()>& is_late) const;

  /// Returns a leaf as it was run with LPT.
  /// @pre it has an objective
  RankedPlan as_run(const Leaf& leaf) const;

  /// Returns a leaf with the best gradient buckets, and with the requested scheduler if that is better and
  /// fits.
  /// @pre as as_run()
  RankedPlan finished(const Leaf& leaf) const;

  /// Returns a plan with the requested scheduler, within memory; nothing if it does not fit.
  std::optional<RankedPlan> filled(const Plan& plan) const;

  /// Returns a plan with random microbatches, which the baselines use to choose plans; nothing if it does not
  /// fit.
  std::optional<RankedPlan> filled_at_random(const Plan& plan) const;

  /// Moves layers of a plan between neighboring stages, one at a time, until no move improves it within
  /// memory under the scheduler that made its microbatches, or it is too late. Returns nothing if no move
  /// does. Subtracts about the number of simulated instructions from `left`.
  std::optional<RankedPlan> with_layers_moved(const RankedPlan& plan, const std::function<bool()>& is_late,
                                              std::int64_t& left) const;

  /// Moves layers with LPT first, which finds many needed moves in less time, and then with the scheduler
  /// that made the plan's microbatches, unless that scheduler is then worse than LPT.
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
