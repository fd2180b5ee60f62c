// These functions schedule batches with the scheduler that the user chose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"
#include "core/scheduler.hpp"
#include "experiments/studies/evaluation.hpp"
#include "experiments/studies/target.hpp"
#include "solver/service/scheduling_service.hpp"
#include "traces/files/schedule.hpp"

namespace dflop {

/// A SchedulerChoice holds a command's options for its microbatch scheduler.
struct SchedulerChoice {
  std::string name;
  ScheduleLimits limits = {};
  /// Whether schedules must fit the GPUs' memory; limits_on() then sets limits.memory. None: the plan
  /// decides.
  std::optional<bool> respect_memory = {};
  /// The cost model that the scheduler uses, which must outlive the runs. Null: the target's cost model.
  const CostModel* cost = nullptr;

  /// Makes the scheduler respect memory for all plans, even for those that do not require it, so that plans
  /// are comparable. Does nothing if the user made this choice, or if the scheduler ignores costs.
  void keep_within_memory();
  bool respects_memory(const Plan& plan) const { return respect_memory.value_or(plan.respect_memory); }
  /// Returns the limits for a plan, including the memory of a GPU of the cluster if it is respected.
  ScheduleLimits limits_on(const ClusterSpec& cluster, const Plan& plan) const;
};

/// Schedules the batches in order. `seconds`, if not null, receives the scheduler's measured time for each
/// batch. If a schedule does not obey the caps, its iteration has status infeasible, a reason and no bins,
/// and is the last one.
ScheduleFile schedule_batches(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                              const SchedulerChoice& choice, std::uint64_t seed,
                              std::vector<Seconds>* seconds = nullptr);

/// A ScheduledRun is a schedule and its evaluation, which is empty if the schedule's last iteration is
/// infeasible.
struct ScheduledRun {
  ScheduleFile schedule;
  std::optional<Evaluation> evaluation;
};

/// Does the work of schedule_batches() and evaluate() in less time, because it schedules each batch while it
/// evaluates the previous one.
ScheduledRun schedule_and_evaluate(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                                   const SchedulerChoice& choice, std::uint64_t seed, int traced);

/// Returns the number of assignments with each status, such as "optimal 7, node_limit 1".
std::string status_counts(const ScheduleFile& schedule);

/// Returns the mean gap to the bound, over the iterations that have a bound; zero if there are none.
double mean_gap(const ScheduleFile& schedule);

}  // namespace dflop
