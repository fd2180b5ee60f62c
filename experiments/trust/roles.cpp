#include "experiments/trust/roles.hpp"

#include <algorithm>
#include <set>

#include "core/support/parallel.hpp"

namespace dflop {
namespace {

/// A Turn holds the results kept from one GPU's run.
struct Turn {
  std::size_t stalls = 0;
  Seconds mean{0};
  std::vector<Seconds> times;
  double idle_fraction = 0;
};

std::string stage_of_gpu(const Timeline& timeline, const Plan& plan, int gpu) {
  const int shared = plan.layout == Layout::shared ? plan.gpus() : 0;
  for (const GroupUsage& group : timeline.groups) {
    for (int rank = group.first_rank; rank < group.first_rank + group.ranks; ++rank) {
      if (device_of(rank, shared) == gpu) return timeline.stages[group.stage];
    }
  }
  return "";
}

}  // namespace

Evaluation RoleRuns::result() const {
  Evaluation all = worst;
  if (role == GpuRole::worst || !worst.timelines.back().stalls.empty()) return all;
  const double faster = worst.mean / mean;
  all.mean = mean;
  all.p95 = p95;
  all.samples_per_s *= faster;
  all.llm_tokens_per_s *= faster;
  all.mfu *= faster;
  all.idle_fraction = idle_fraction;
  return all;
}

std::vector<int> role_gpus(const Plan& plan) {
  const int shared = plan.layout == Layout::shared ? plan.gpus() : 0;
  std::set<int> gpus;
  for (const std::int32_t rank : first_ranks(plan)) gpus.insert(device_of(rank, shared));
  return {gpus.begin(), gpus.end()};
}

RoleRuns run_roles(const Plan& plan, const Target& target, const ScheduleFile& schedule,
                   const WhatIf& what_if, const RoleOptions& options) {
  const std::vector<int> gpus = role_gpus(plan);
  const auto evaluated = [&](int gpu, int spans) {
    WhatIf of_gpu = what_if;
    of_gpu.gpu = gpu;
    return evaluate(plan, target, schedule, spans, WhatIfExecutor(of_gpu, target.cluster, options.reprice),
                    options.order);
  };
  std::vector<Turn> turns(gpus.size());
  parallel_for(gpus.size(), [&](std::size_t g) {
    const Evaluation run = evaluated(gpus[g], 0);
    turns[g] = {run.timelines.back().stalls.size(), run.mean, {}, run.idle_fraction};
    for (const Timeline& timeline : run.timelines) turns[g].times.emplace_back(timeline.makespan);
  });
  const auto worst = std::ranges::max_element(turns, [](const Turn& a, const Turn& b) {
    return a.stalls != b.stalls ? a.stalls < b.stalls : a.mean < b.mean;
  });
  RoleRuns runs{*what_if.role, gpus.size(), gpus[static_cast<std::size_t>(worst - turns.begin())]};
  runs.worst = evaluated(runs.worst_gpu, options.traced);
  runs.worst_stage = stage_of_gpu(runs.worst.timelines.front(), plan, runs.worst_gpu);
  std::vector<Seconds> times;
  double ended = 0;
  for (const Turn& turn : turns) {
    runs.stalls += static_cast<double>(turn.stalls) / static_cast<double>(turns.size());
    if (turn.stalls > 0) continue;
    ++ended;
    runs.mean += turn.mean;
    runs.idle_fraction += turn.idle_fraction;
    times.insert(times.end(), turn.times.begin(), turn.times.end());
  }
  if (ended == 0) return runs;
  runs.mean /= ended;
  runs.idle_fraction /= ended;
  std::ranges::sort(times);
  runs.p95 = nearest_rank(times, 0.95);
  return runs;
}

Table role_table(const RoleRuns& runs) {
  Table table{{{"gpus", "GPUs in turn"},
               {"mean_s", "mean s/iter", 4},
               {"worst_s", "worst s/iter", 4},
               {"worst_gpu", "worst GPU"},
               {"worst_stage", "computes"}},
              {{runs.gpus, runs.mean > Seconds(0) ? Cell(runs.mean) : Cell(),
                runs.worst.timelines.back().stalls.empty() ? Cell(runs.worst.mean) : Cell(), runs.worst_gpu,
                runs.worst_stage}}};
  if (runs.stalls > 0) {
    table.columns.push_back({"stalled_mean", "tp groups stalled, mean", 1});
    table.columns.push_back({"stalled_most", "max"});
    table.rows[0].emplace_back(runs.stalls);
    table.rows[0].emplace_back(runs.worst.timelines.back().stalls.size());
  }
  return table;
}

}  // namespace dflop
