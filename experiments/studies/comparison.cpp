#include "experiments/studies/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "experiments/cli/option_values.hpp"

namespace dflop {
namespace {

void run_system(System& system, const Target& target, const ComparisonInput& input) {
  if (!system.planned.plan) return;
  const Plan& plan = *system.planned.plan;
  ScheduledRun run = schedule_and_evaluate(plan, target, input.batches, system.scheduler, input.seed, 1);
  system.schedule = std::move(run.schedule);
  const auto refuse = [&](const std::string& why) {
    system.planned.infeasible_reason =
        fmt::format("{} with the {} scheduler: {}", describe(plan), system.scheduler.name, why);
  };
  if (!run.evaluation) return refuse(system.schedule.iterations.back().reason);
  if (const auto problem = out_of_memory(run.evaluation->timelines, target.cluster)) return refuse(*problem);
  system.evaluation = std::move(run.evaluation);
}

double samples_per_s(const std::vector<System>& systems, std::string_view name) {
  for (const System& system : systems) {
    if (system.name == name && system.evaluation) return system.evaluation->samples_per_s;
  }
  return 0;
}

/// Returns the scheduler of the search, which says with which scheduler its plan did best: its own within
/// memory, or LPT.
SchedulerChoice searched_scheduler(const RankedPlan& best) {
  SchedulerChoice choice{best.scheduler};
  choice.respect_memory = best.scheduler != "lpt";
  return choice;
}

/// Returns value / reference, or nothing where there is no reference.
Cell speedup(double value, double reference) {
  return reference > 0 ? Cell(value / reference) : Cell();
}

}  // namespace

std::span<const SystemKind> system_kinds() {
  static constexpr SystemKind kSystems[] = {
      {"pytorch", "pytorch", Filling::random,
       "one tp, pp, dp for all; encoder and LLM layers split evenly by count"},
      {"megatron", "megatron", Filling::random, "one tp, pp, dp for all; encoder on the first stage"},
      {"dflop-optimizer", "dflop", Filling::random,
       "the published data-aware optimizer, as its released code chooses"},
      {"dflop", "dflop", Filling::chosen, "the same plan with the microbatch scheduler"},
      {"dflop-paper-optimizer", "dflop-paper", Filling::random,
       "the published optimizer, as Algorithm 1 of the paper is printed"},
      {"dflop-paper", "dflop-paper", Filling::chosen, "the same plan with the microbatch scheduler"},
      {"dflop-expected", "dflop-expected", Filling::chosen,
       "our variant: T in the mean over the data, searched exactly; with the scheduler"},
      {"search", "search", Filling::searched,
       "layout, parallelism, layers of stages, microbatches, schedule and recomputation, by simulation"},
  };
  return kSystems;
}

std::vector<System> systems_to_compare(const std::vector<std::string_view>& names,
                                       const SchedulerChoice& scheduler) {
  std::vector<std::string_view> known;
  for (const SystemKind& kind : system_kinds()) known.push_back(kind.name);
  for (const std::string_view name : names) require_one_of("systems", known, std::string(name));
  const auto scheduler_of = [&](Filling filling) {
    switch (filling) {
      case Filling::random:
        break;
      case Filling::chosen:
        return scheduler;
      case Filling::searched:
        return SchedulerChoice{SearchOptions{}.scheduler};
    }
    return SchedulerChoice{"random"};
  };
  std::vector<System> systems;
  for (const SystemKind& kind : system_kinds()) {
    if (!names.empty() && std::ranges::count(names, kind.name) == 0) continue;
    systems.push_back({std::string(kind.name), std::string(kind.planner), scheduler_of(kind.filling)});
  }
  return systems;
}

void run_systems(std::vector<System>& systems, const Target& target, const ComparisonInput& input) {
  for (System& system : systems) {
    const System& first = *std::find_if(systems.begin(), systems.end(),
                                        [&](const System& other) { return other.planner == system.planner; });
    if (&first != &system) {
      system.planned = first.planned;
      system.planning = first.planning;
    } else {
      const auto start = std::chrono::steady_clock::now();
      system.planned = make_plan(system.planner, target, input.samples, input.batches, input.gbs, input.seed,
                                 input.options, input.search);
      system.planning = std::chrono::steady_clock::now() - start;
    }
    if (!system.planned.best.empty()) system.scheduler = searched_scheduler(system.planned.best.front());
    run_system(system, target, input);
  }
}

Seconds training_time(const System& system, const Training& training) {
  return Seconds(training.samples / system.evaluation->samples_per_s);
}

Table comparison_table(const std::vector<System>& systems) {
  Table table;
  table.columns = {{"system", "system"},
                   {"plan", "plan"},
                   {"scheduler", "scheduler"},
                   {"schedule_gap", "gap %", 2, 100},
                   {"schedule_status", "status"},
                   {"iteration_s_mean", "s/iter", 3},
                   {"iteration_s_p95", "p95 s", 3},
                   {"samples_per_s", "samples/s", 2},
                   {"llm_tokens_per_s", "tokens/s", 0},
                   {"mfu", "MFU %", 1, 100},
                   {"idle_fraction", "idle %", 1, 100},
                   {"peak_memory_bytes", "peak GiB", 1, 0x1p-30},
                   {"speedup_vs_pytorch", "x pytorch", 2},
                   {"speedup_vs_megatron", "x megatron", 2}};
  const double pytorch = samples_per_s(systems, "pytorch");
  const double megatron = samples_per_s(systems, "megatron");
  for (const System& system : systems) {
    if (!system.evaluation) {
      table.rows.push_back({system.name, std::string("infeasible"), system.scheduler.name});
      table.rows.back().resize(table.columns.size());
      continue;
    }
    const Evaluation& e = *system.evaluation;
    table.rows.push_back({system.name, describe(*system.planned.plan), system.scheduler.name,
                          mean_gap(system.schedule), status_counts(system.schedule), e.mean.count(),
                          e.p95.count(), e.samples_per_s, e.llm_tokens_per_s, e.mfu, e.idle_fraction,
                          e.peak_memory.count, speedup(e.samples_per_s, pytorch),
                          speedup(e.samples_per_s, megatron)});
  }
  return table;
}

void add_training_columns(Table& table, const std::vector<System>& systems, const Training& training,
                          int gpus) {
  table.columns.push_back({"train_hours", "hours", 2});
  table.columns.push_back({"train_gpu_hours", "GPU-hours", 1});
  if (training.gpu_hour_cost) table.columns.push_back({"train_cost", "cost", 2});
  if (training.gpu_power_w) table.columns.push_back({"train_energy_kwh", "kWh", 1});
  for (std::size_t i = 0; i < systems.size(); ++i) {
    std::vector<Cell>& row = table.rows[i];
    if (systems[i].evaluation) {
      const double hours = training_time(systems[i], training).count() / 3600;
      const double gpu_hours = hours * gpus;
      row.push_back(hours);
      row.push_back(gpu_hours);
      if (training.gpu_hour_cost) row.push_back(gpu_hours * *training.gpu_hour_cost);
      if (training.gpu_power_w) row.push_back(gpu_hours * *training.gpu_power_w / 1000);
    }
    row.resize(table.columns.size());
  }
}

std::vector<std::string> infeasible_notes(const std::vector<System>& systems) {
  std::vector<std::string> notes;
  for (const System& system : systems) {
    if (!system.evaluation)
      notes.push_back(system.name + " is infeasible: " + system.planned.infeasible_reason);
  }
  return notes;
}

}  // namespace dflop
