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
  /// If true, limits.memory is the cluster's memory. None: the plan decides.
  std::optional<bool> respect_memory = {};
  /// The scheduler's own cost model, which must outlive the runs. Null: the target's.
  const CostModel* cost = nullptr;

  /// Makes the scheduler stay within memory for all plans, not only those that require it, so that they are
  /// comparable. Does nothing if the user says otherwise, or the scheduler ignores costs.
  void keep_within_memory();
  bool respects_memory(const Plan& plan) const { return respect_memory.value_or(plan.respect_memory); }
  /// Returns the limits for a plan, including the memory of a GPU of the cluster if it is respected.
  ScheduleLimits limits_on(const ClusterSpec& cluster, const Plan& plan) const;
};

/// Schedules every batch. `seconds`, if given, receives the measured time of each. An iteration whose caps
/// cannot be obeyed, or were not obeyed, has status infeasible, a reason and no bins. It is the last one.
ScheduleFile schedule_batches(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                              const SchedulerChoice& choice, std::uint64_t seed,
                              std::vector<Seconds>* seconds = nullptr);

/// A ScheduledRun is a schedule and its evaluation, which is empty if the schedule's last iteration is
/// infeasible.
struct ScheduledRun {
  ScheduleFile schedule;
  std::optional<Evaluation> evaluation;
};

/// Combines schedule_batches() and evaluate() in less time: each batch is scheduled while the previous one is
/// evaluated.
ScheduledRun schedule_and_evaluate(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                                   const SchedulerChoice& choice, std::uint64_t seed, int traced);

/// Returns the number of assignments with each status, such as "optimal 7, node_limit 1".
std::string status_counts(const ScheduleFile& schedule);

/// Returns the mean gap of the iterations with a bound; zero if none has one.
double mean_gap(const ScheduleFile& schedule);

}  // namespace dflop
