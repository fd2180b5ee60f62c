#include "experiments/reports/time_breakdown.hpp"

#include <algorithm>
#include <numeric>

#include "core/iteration/planner.hpp"
#include "core/support/parallel.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "sim/analysis/relaxations.hpp"
#include "sim/engine.hpp"

namespace dflop {
namespace {

/// Returns a cluster in which matrix products hide all tensor-parallel communication.
ClusterSpec without_tensor_communication(ClusterSpec cluster) {
  cluster.software.tensor_overlap = 1;
  for (NodeGroup& group : cluster.node_groups) group.software.tensor_overlap = 1;
  return cluster;
}

/// Returns the priced time of compute and optimizer on the mean rank.
Seconds mean_busy(const Program& program, const ProgramCosts& costs) {
  double total = 0;
  double ranks = 0;
  for (const Group& group : program.groups) {
    Nanoseconds busy{0};
    for (std::int64_t i = group.begin; i < group.end; ++i) busy += costs.instruction[i];
    total += Seconds(busy).count() * group.ranks;
    ranks += group.ranks;
  }
  return Seconds(total / ranks);
}

TimeBreakdown iteration_breakdown(const Target& target, const CostModel& no_tensor_communication,
                                  Iteration iteration) {
  const Timeline run = simulate(iteration.program, iteration.costs, Detail::usage);
  const Seconds priced = mean_busy(iteration.program, iteration.costs);
  const Nanoseconds balanced =
      relaxed_makespan(iteration.program, iteration.costs, {Relaxation::Kind::balanced});
  for (Stage& stage : iteration.program.stages) stage.recomputation = Recomputation::none;
  const Seconds once = mean_busy(iteration.program, price(target.cost, iteration));
  const Seconds without = mean_busy(iteration.program, price(no_tensor_communication, iteration));

  TimeBreakdown mean;
  const RankShares shares = rank_shares(run);
  const Seconds idle = shares.imbalance + shares.bubble;  // split below into what balancing would save and
                                                          // the rest
  mean[TimeUse::recomputation] = priced - once;
  mean[TimeUse::tensor_communication] = once - without;
  // On shared GPUs, ranks are busy longer than their priced time.
  mean[TimeUse::compute] = shares.busy - (priced - without);
  mean[TimeUse::imbalance] = std::clamp(Seconds(run.makespan - balanced), Seconds(0), idle);
  mean[TimeUse::bubbles] = idle - mean[TimeUse::imbalance];
  mean[TimeUse::exposed_communication] = shares.communication;
  const double used = static_cast<double>(iteration.program.gpus()) / target.cluster.gpus();
  for (Seconds& part : mean.parts) part *= used;
  mean[TimeUse::unused_gpus] = Seconds(run.makespan) * (1 - used);
  return mean;
}

}  // namespace

Seconds TimeBreakdown::sum() const {
  return std::accumulate(parts.begin(), parts.end(), Seconds(0));
}

TimeBreakdown time_breakdown(const Target& target, const Plan& plan, const ScheduleFile& schedule) {
  const AnalyticCostModel no_tensor_communication(target.model, without_tensor_communication(target.cluster));
  std::vector<TimeBreakdown> iterations(schedule.iterations.size());
  parallel_for(iterations.size(), [&](std::size_t k) {
    const ScheduledIteration& scheduled = schedule.iterations[k];
    iterations[k] =
        iteration_breakdown(target, no_tensor_communication,
                            make_iteration(target.problem(), plan, scheduled.samples, scheduled.assignment));
  });
  TimeBreakdown mean;
  for (const TimeBreakdown& one : iterations) {
    for (std::size_t i = 0; i < mean.parts.size(); ++i)
      mean.parts[i] += one.parts[i] / static_cast<double>(iterations.size());
  }
  return mean;
}

}  // namespace dflop
