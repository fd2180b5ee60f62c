#include "experiments/studies/scheduling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "core/error.hpp"
#include "core/refuse.hpp"
#include "core/support/borrowed.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/studies/explain.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

/// Returns the cost model that the scheduler predicts with.
const CostModel& scheduling_cost(const Target& target, const SchedulerChoice& choice) {
  return choice.cost != nullptr ? *choice.cost : target.cost;
}

/// Returns the input of a service for these batches. The input owns nothing, so it is only for deterministic
/// services, whose threads end with them.
ServiceInput service_input(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                           const SchedulerChoice& choice) {
  const auto draw = [&batches](std::uint64_t k) {
    return k < batches.size() ? borrowed(batches[k]) : nullptr;
  };
  const CostModel& cost = scheduling_cost(target, choice);
  return {draw, make_scheduler(choice.name), plan, target.model, borrowed(cost)};
}

ScheduleFile empty_schedule(const Plan& plan, const std::vector<Batch>& batches,
                            const SchedulerChoice& choice, std::uint64_t seed) {
  return {choice.name, plan.model, static_cast<int>(batches.empty() ? 0 : batches[0].size()), seed, {}};
}

/// Returns whether the schedule's value must come from a run. A scheduler that minimizes makespans searches
/// with durations that are affine in the work, and these may differ from the cost model's.
bool is_run(const ScheduledIteration& iteration) {
  return iteration.objective == Objective::makespan && iteration.feasible();
}

void set_makespan(ScheduledIteration& iteration, Seconds makespan) {
  iteration.value = makespan;
  if (!meets_bound(iteration.bound.count(), makespan.count())) {
    throw Error(ErrorKind::internal, fmt::format("a makespan of {} s below its bound of {} s",
                                                 makespan.count(), iteration.bound.count()));
  }
  iteration.bound = std::min(iteration.bound, makespan);  // up to rounding
  if (iteration.met()) {
    iteration.status = ScheduleStatus::optimal;
    iteration.reason.clear();
  } else if (iteration.status == ScheduleStatus::optimal) {
    iteration.status = ScheduleStatus::heuristic;
  }
}

/// Makes an iteration infeasible if its run needs more memory than allowed. Its scheduler prevents this
/// unless the order of steps depends on durations and the scheduler's durations differ from the target's.
void refuse_overrun(const SchedulerChoice& choice, const Plan& plan, const Target& target,
                    const Timeline& run, ScheduledIteration& iteration) {
  const Bytes usable = target.cluster.gpu.usable_memory();
  if (!choice.respects_memory(plan) || peak_memory(run) <= usable) return;
  const GroupUsage& fullest = run.groups[fullest_rank({&run, 1}).group];
  iteration.status = ScheduleStatus::infeasible;
  iteration.reason = fmt::format(
      "in a run its microbatches need {:.1f} GiB on rank {}{}, {:.1f} GiB are usable",
      in_gib(fullest.peak_memory), fullest.first_rank, with_other_module(run, fullest), in_gib(usable));
  iteration.assignment = {};
}

/// Runs the iteration with the scheduler's costs, in the target's order.
Timeline predict(const Plan& plan, const Target& target, const SchedulerChoice& choice,
                 const ScheduledIteration& iteration) {
  const Iteration made = make_iteration(target.problem(), plan, iteration.samples, iteration.assignment);
  if (choice.cost == nullptr) return target.executor.run(made, Detail::usage);
  return target.executor.run(made, *choice.cost, Detail::usage);
}

/// Reports the scheduler's events to the user, and converts the batch to the form used in files.
ScheduledIteration stored(const ScheduledBatch& batch) {
  for (const ScheduleEvent& event : batch.events) {
    say("dflop: note: iteration {}: {}: {}\n", event.iteration, to_string(event.kind), event.message);
  }
  return {batch.result, *batch.samples};
}

}  // namespace

void SchedulerChoice::keep_within_memory() {
  const Method& method = find_method(name);
  const bool sees_costs = method.minimizes || method.order_bins != nullptr;
  if (!respect_memory && sees_costs) respect_memory = true;
}

ScheduleLimits SchedulerChoice::limits_on(const ClusterSpec& cluster, const Plan& plan) const {
  ScheduleLimits all = limits;
  all.usable_memory = cluster.gpu.usable_memory();
  if (respects_memory(plan)) all.memory = cluster.gpu.usable_memory();
  return all;
}

ScheduleFile schedule_batches(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                              const SchedulerChoice& choice, std::uint64_t seed,
                              std::vector<Seconds>* seconds) {
  SchedulingService service(service_input(plan, target, batches, choice),
                            {.seed = seed, .limits = choice.limits_on(target.cluster, plan)});
  ScheduleFile file = empty_schedule(plan, batches, choice, seed);
  Progress progress("scheduling");
  while (const std::optional<ScheduledBatch> batch = service.next()) {
    ScheduledIteration& iteration = file.iterations.emplace_back(stored(*batch));
    const bool other_order = choice.cost != nullptr && reads_tables(plan.order);
    if (is_run(iteration) || (iteration.feasible() && choice.respects_memory(plan) && other_order)) {
      const Timeline run = predict(plan, target, choice, iteration);
      if (is_run(iteration)) set_makespan(iteration, run.makespan);
      refuse_overrun(choice, plan, target, run, iteration);
    }
    if (seconds != nullptr) seconds->push_back(batch->scheduling);
    progress.update(static_cast<std::int64_t>(file.iterations.size()),
                    static_cast<std::int64_t>(batches.size()));
    if (!iteration.feasible()) break;
  }
  return file;
}

ScheduledRun schedule_and_evaluate(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                                   const SchedulerChoice& choice, std::uint64_t seed, int traced) {
  SchedulingService service(service_input(plan, target, batches, choice),
                            {.seed = seed, .limits = choice.limits_on(target.cluster, plan)});
  ScheduledRun run{empty_schedule(plan, batches, choice, seed), {}};
  Evaluator evaluator(plan, target, target.executor, batches.size(), traced);
  while (const std::optional<ScheduledBatch> batch = service.next()) {
    ScheduledIteration& iteration = run.schedule.iterations.emplace_back(stored(*batch));
    if (!iteration.feasible()) return run;
    const Timeline& ran = evaluator.run(iteration.samples, iteration.assignment);
    const Seconds makespan = ran.makespan;
    refuse_overrun(choice, plan, target, ran, iteration);
    if (!iteration.feasible()) return run;
    if (!is_run(iteration)) continue;
    // If the scheduler predicts with the same costs as the run, the run is the measurement.
    set_makespan(iteration,
                 choice.cost == nullptr ? makespan : predict(plan, target, choice, iteration).makespan);
  }
  run.evaluation = evaluator.take();
  return run;
}

std::string status_counts(const ScheduleFile& schedule) {
  std::map<ScheduleStatus, int> counts;
  for (const ScheduledIteration& iteration : schedule.iterations) ++counts[iteration.status];
  std::string text;
  for (const auto& [status, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(status), count);
  }
  return text;
}

double mean_gap(const ScheduleFile& schedule) {
  double sum = 0;
  double bounded = 0;
  for (const ScheduledIteration& iteration : schedule.iterations) {
    if (iteration.bound_kind == BoundKind::none) continue;
    sum += iteration.gap();
    ++bounded;
  }
  return bounded > 0 ? sum / bounded : 0;
}

}  // namespace dflop
