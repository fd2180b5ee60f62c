#include "solver/planners/search/score.hpp"

#include <algorithm>

#include "core/program/plan_stages.hpp"
#include "solver/plan_problem/trial.hpp"

namespace dflop {
namespace {

/// Adds what the mean rank does in one iteration.
void add_shares(RankShares& shares, const Timeline& timeline) {
  Seconds busy{0};
  Seconds busiest{0};
  Seconds idle{0};
  Seconds wait{0};
  int ranks = 0;
  for (const GroupUsage& group : timeline.groups) {
    ranks += group.ranks;
    busiest = std::max(busiest, Seconds(group.busy));
    busy += group.ranks * Seconds(group.busy);
    idle += group.ranks * Seconds(group.bubble);
    wait += group.ranks * Seconds(group.wait);
  }
  const Seconds imbalance = std::min(busiest - busy / ranks, idle / ranks);
  shares.busy += busy / ranks;
  shares.imbalance += imbalance;
  shares.bubble += idle / ranks - imbalance;
  shares.communication += wait / ranks;
}

}  // namespace

RankShares PlanScore::mean() const {
  const double count = std::max<double>(1, static_cast<double>(iterations.size()));
  return {total.busy / count, total.imbalance / count, total.bubble / count, total.communication / count};
}

void extend_score(PlanScore& score, const PlanRequest& request, const Plan& plan, const Scheduler& scheduler,
                  std::size_t iterations, bool within_memory) {
  const Bytes usable = request.cluster.gpu.usable_memory();
  for (std::size_t k = score.iterations.size(); k < iterations && score.fits; ++k) {
    ScheduleRequest schedule{request.batches[k], plan, request.model, request.cost, request.seed, k};
    if (within_memory) schedule.memory = usable;
    const ScheduleResult scheduled = scheduler.schedule(schedule);
    if (scheduled.status == ScheduleStatus::infeasible) {
      score.fits = false;
      break;
    }
    const Timeline timeline = run_iteration(request, plan, k, scheduled.assignment);
    score.peak_memory = std::max(score.peak_memory, peak_memory(timeline));
    score.fits = score.peak_memory <= usable;
    score.iterations.push_back(timeline.makespan);
    add_shares(score.total, timeline);
  }
}

std::int64_t instructions_of(const Plan& plan) {
  constexpr int kEachStep = 6;  // forward, backward and their messages
  const int encoder_groups = plan.layout == Layout::disaggregated ? plan.encoder.pp * plan.encoder.dp : 0;
  const std::int64_t steps =
      std::int64_t{plan.microbatches} * (encoder_groups + plan.llm.pp * plan.llm.dp * plan.chunks);
  return steps * kEachStep * (reads_tables(plan.schedule) ? 2 : 1);
}

}  // namespace dflop
