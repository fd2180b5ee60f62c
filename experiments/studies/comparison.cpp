#include "experiments/studies/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/support/parallel.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/headroom.hpp"
#include "experiments/studies/made_by.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/schedulers/command.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Schedules and runs a system's plan. If it does not fit, there is a reason instead of an evaluation.
void run_system(System& system, const Target& target, const ComparisonInput& input) {
  if (!system.planned.plan) return;
  system.planned.plan->respect_memory = system.scheduler.respects_memory(*system.planned.plan);
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

/// Determines whether a system's plan fits further batches.
void judge_memory(System& system, const Target& target, const ComparisonInput& input) {
  if (!system.evaluation) return;
  const Plan& plan = *system.planned.plan;
  if (system.scheduler.name == kCommandMethod) return;  // further batches are not sent to a command
  if (system.scheduler.name == "random") {              // for which a few batches tell little
    system.fits_further =
        estimate_headroom(plan, target, input.samples, "random", plan.respect_memory, input.seed).holds_all();
    return;
  }
  const auto filler = make_scheduler(filler_for(system.scheduler.name), {.prove = false});
  system.fits_further = !overrun(target.problem(), plan, hardest(input.further), *filler, input.seed,
                                 plan.respect_memory, target.cluster.gpu.usable_memory());
}

/// Returns the objective value of a system's iterations; infinite if it has none.
Seconds objective_of(const System& system, PlanObjective objective) {
  if (!system.evaluation) return Seconds(std::numeric_limits<double>::infinity());
  std::vector<Seconds> iterations;
  for (const Timeline& timeline : system.evaluation->timelines) iterations.emplace_back(timeline.makespan);
  return objective_value(objective, iterations);
}

/// Returns whether `one` is the better choice: first a plan that fits further batches, then the faster plan.
bool is_better(const System& one, const System& other, PlanObjective objective) {
  if (!one.evaluation || !other.evaluation) return one.evaluation.has_value() && !other.evaluation;
  const auto fits = [](const System& system) { return system.fits_further.value_or(false); };
  if (fits(one) != fits(other)) return fits(one);
  return objective_of(one, objective) < objective_of(other, objective);
}

double samples_per_s(const std::vector<System>& systems, std::string_view name) {
  for (const System& system : systems) {
    if (system.name == name && system.evaluation) return system.evaluation->samples_per_s;
  }
  return 0;
}

/// Runs all plans among which a planner leaves the choice, with the system's microbatches. Keeps the best
/// plan that fits, preferably one that also fits further batches; if none fits, the first plan.
void run_choices(System& system, const Target& target, const ComparisonInput& input) {
  const System unfilled = system;
  run_system(system, target, input);
  judge_memory(system, target, input);
  const PlanObjective objective = input.search.objective;
  for (std::size_t i = 1; i < unfilled.planned.best.size(); ++i) {
    System other = unfilled;
    other.planned.plan = unfilled.planned.best[i].plan;
    run_system(other, target, input);
    if (system.fits_further == true && objective_of(other, objective) >= objective_of(system, objective))
      continue;  // not better, regardless of the memory it needs
    judge_memory(other, target, input);
    if (is_better(other, system, objective)) system = std::move(other);
  }
}

/// Returns the schedulers to try for the search's best plan: the one with which it did best, within memory,
/// and LPT, with which it is sure to fit.
std::vector<SchedulerChoice> searched_schedulers(const RankedPlan& best) {
  SchedulerChoice choice{best.scheduler};
  choice.limits.steps = best.steps;  // within memory, as the plans of a search require
  std::vector<SchedulerChoice> choices = {choice};
  if (best.scheduler != "lpt" && best.scheduler != "random") choices.push_back({"lpt"});
  return choices;
}

/// Makes a system's plan, or reuses the plan of an earlier system with the same planner.
void plan_system(System& system, std::span<const System> earlier, const Target& target,
                 const ComparisonInput& input) {
  const auto first = std::ranges::find(earlier, system.planner, &System::planner);
  if (first != earlier.end()) {
    system.planned = first->planned;
    if (!system.planned.best.empty()) system.planned.plan = system.planned.best.front().plan;
    system.planning = first->planning;
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  system.planned = make_plan(system.planner, {target, input.samples, input.batches, input.gbs, input.seed,
                                              input.options, input.search, true});
  system.planning = std::chrono::steady_clock::now() - start;
  if (!system.planned.plan || may_be(input.search.layouts, system.planned.plan->layout)) return;
  system.planned.infeasible_reason = fmt::format("its plans are {}, but '--layout' asks for another layout",
                                                 to_string(system.planned.plan->layout));
  system.planned.plan.reset();
  system.planned.best.clear();
}

/// Gives the search the plan and the microbatches of another row if that row is better.
void take_better_row(System& search, std::span<const System> others, const SearchOptions& options) {
  for (const System& other : others) {
    if (other.is_search() || !other.evaluation) continue;
    if (!may_be(options.layouts, other.planned.plan->layout)) continue;  // only layouts that the user allows
    if (!is_better(other, search, options.objective)) continue;
    search.planned.plan = other.planned.plan;
    search.planned.plan->planner = "search";
    search.scheduler = other.scheduler;
    search.schedule = other.schedule;
    search.evaluation = other.evaluation;
    search.fits_further = other.fits_further;
  }
}

/// Runs the search from the plans of the other systems, and takes one of those plans if it is still better.
void run_search(System& system, std::span<const System> others, const Target& target, ComparisonInput input) {
  for (const System& other : others) {
    if (!other.planned.plan) continue;
    input.search.seeds.push_back(*other.planned.plan);
    input.search.seeds.back().planner = other.planner;
  }
  plan_system(system, {}, target, input);
  const PlanObjective objective = input.search.objective;
  if (!system.planned.best.empty()) {
    const System unfilled = system;
    for (const SchedulerChoice& choice : searched_schedulers(system.planned.best.front())) {
      System filled = unfilled;
      filled.scheduler = choice;
      run_system(filled, target, input);
      judge_memory(filled, target, input);
      if (!system.evaluation || is_better(filled, system, objective)) system = std::move(filled);
      if (system.evaluation) break;
    }
  }
  take_better_row(system, others, input.search);
}

/// Returns value / reference, or nothing without a reference.
Cell speedup(double value, double reference) {
  return reference > 0 ? Cell(value / reference) : Cell();
}

}  // namespace

const std::vector<SystemKind>& system_kinds() {
  using enum FreePart;
  static const std::string_view kOne = "one tp, pp, dp, microbatches";
  static const std::string_view kEncoderFirst = "one tp, pp, dp, microbatches, LLM layers of the first stage";
  static const std::string_view kApart = "tp, pp, dp of each module and microbatches, by its rule";
  static const std::vector<FreePart> kRest = {recomputation, placement, gradient_buckets};
  static const std::vector<FreePart> kAll = {order, recomputation, placement, gradient_buckets};
  static const std::vector<SystemKind> kSystems = {
      {.name = "pytorch",
       .planner = "pytorch",
       .chooses = kOne,
       .parts = kAll,
       .what = "one tp, pp, dp for all modules; encoder and LLM layers split evenly by count"},
      {.name = "megatron",
       .planner = "megatron",
       .chooses = kEncoderFirst,
       .parts = kAll,
       .what = "one tp, pp, dp for all modules; encoder on the first stage"},
      {.name = "megatron-balanced",
       .planner = "megatron",
       .filling = Filling::chosen,
       .chooses = kEncoderFirst,
       .parts = kAll,
       .what = "the same plan with the microbatch scheduler"},
      {.name = "megatron-default",
       .planner = "megatron-default",
       .chooses = "the smallest tp * pp that fits, one sample a microbatch",
       .what = "one tp, pp, dp for all modules, set by hand as in papers"},
      {.name = "dflop-optimizer",
       .planner = "dflop",
       .chooses = kApart,
       .parts = kRest,
       .what = "the published data-aware optimizer, as in its released code"},
      {.name = "dflop",
       .planner = "dflop",
       .filling = Filling::chosen,
       .chooses = kApart,
       .parts = kRest,
       .what = "the same plan with the microbatch scheduler"},
      {.name = "dflop-paper-optimizer",
       .planner = "dflop-paper",
       .chooses = kApart,
       .parts = kRest,
       .what = "the published optimizer, as printed in Algorithm 1 of the paper"},
      {.name = "dflop-paper",
       .planner = "dflop-paper",
       .filling = Filling::chosen,
       .chooses = kApart,
       .parts = kRest,
       .what = "the same plan with the microbatch scheduler"},
      {.name = "dflop-expected",
       .planner = "dflop-expected",
       .filling = Filling::chosen,
       .chooses = kApart,
       .parts = kRest,
       .what = "our variant: exact search for the least mean T over the data; with the scheduler"},
      {.name = "megatron-mimo",
       .planner = "megatron-mimo",
       .chooses = "tp, pp, dp of each module and microbatches, as MIMO can run them",
       .parts = kRest,
       .what = "Megatron-LM's MIMO with separate GPUs",
       .by_name_only = true},
      {.name = "disttrain",
       .planner = "disttrain",
       .filling = Filling::own,
       .chooses = kApart,
       .parts = kRest,
       .what = "DistTrain, after its abstract; order of microbatches from memory",
       .scheduler = "disttrain",
       .by_name_only = true},
      {.name = "maestro-order",
       .planner = "megatron-mimo",
       .filling = Filling::own,
       .chooses = "tp, pp, dp of each module and microbatches, as MIMO can run them",
       .parts = kRest,
       .what = "the plan of megatron-mimo with Maestro's order of microbatches",
       .scheduler = "maestro",
       .by_name_only = true},
      {.name = "search",
       .planner = "search",
       .filling = Filling::searched,
       .any_layout = true,
       .chooses = "tp, pp, dp of each module, layers of stages, microbatches, scheduler",
       .parts = kAll,
       .what = "chooses everything by simulation; starts from the plans of all other rows"},
  };
  return kSystems;
}

namespace {

/// Returns the choices that a kind of system is free to make, without those that the user fixes.
std::string free_choices(const SystemKind& kind, const SearchOptions& search) {
  const auto is_open = [&](FreePart part) {
    switch (part) {
      case FreePart::order:
        return search.orders.empty();
      case FreePart::recomputation:
        return search.recomputations.empty();
      case FreePart::placement:
        return search.placements.empty();
      case FreePart::gradient_buckets:
        return search.gradient_buckets.empty();
    }
    return false;
  };
  const bool any_layout = kind.any_layout && search.layouts.empty();
  std::string text = std::string(any_layout ? "layout, " : "") + std::string(kind.chooses);
  for (const FreePart part : kind.parts) {
    if (is_open(part)) text += fmt::format(", {}", to_string(part));
  }
  return text;
}

}  // namespace

std::vector<System> systems_to_compare(const std::vector<std::string_view>& names,
                                       const SchedulerChoice& scheduler, const SearchOptions& search) {
  std::vector<std::string_view> known;
  for (const SystemKind& kind : system_kinds()) known.push_back(kind.name);
  for (const std::string_view name : names) {
    require_one_of("systems", known, std::string(name));
    if (std::ranges::count(names, name) > 1)
      refuse_option("systems", fmt::format("expected each system once, found '{}' again", name));
  }
  const auto scheduler_of = [&](const SystemKind& kind) {
    switch (kind.filling) {
      case Filling::random:
        break;
      case Filling::chosen:
        return scheduler;
      case Filling::searched:
        return SchedulerChoice{SearchOptions{}.scheduler};
      case Filling::own: {
        SchedulerChoice own{std::string(kind.scheduler)};
        own.keep_within_memory();
        return own;
      }
    }
    return SchedulerChoice{"random"};
  };
  std::vector<System> systems;
  for (const SystemKind& kind : system_kinds()) {
    if (names.empty() ? kind.by_name_only : std::ranges::count(names, kind.name) == 0) continue;
    System& system = systems.emplace_back();
    system.name = kind.name;
    system.planner = kind.planner;
    system.scheduler = scheduler_of(kind);
    system.chooses = free_choices(kind, search);
  }
  return systems;
}

std::vector<System> own_systems(const std::vector<std::string_view>& files, const Target& target, int gbs,
                                const SchedulerChoice& scheduler, const std::vector<System>& others) {
  std::vector<System> systems;
  for (const std::string_view name : files) {
    const std::string file(name);
    System& system = systems.emplace_back();
    system.name = std::filesystem::path(file).stem().string();
    const auto has_name = [&](const System& other) { return &other != &system && other.name == system.name; };
    if (std::ranges::any_of(others, has_name) || std::ranges::any_of(systems, has_name)) {
      throw Error(
          ErrorKind::input,
          fmt::format("expected a file name that differs from all other rows, found '{}' twice", system.name),
          file);
    }
    const std::string text = read_text_file(file);
    Plan plan = parse_plan(text, file);
    const auto expect = [&](std::string_view key, const auto& expected, const auto& found) {
      if (expected == found) return;
      throw Error(ErrorKind::input, fmt::format("expected {}, found {}", expected, found),
                  fmt::format("{}: key '{}'", file, key));
    };
    expect("model", target.model.name, plan.model);
    expect("cluster", target.cluster.name, plan.cluster);
    expect("gbs", gbs, plan.gbs);
    validate(plan, target.model, target.cluster, file);
    note_changed_files(file, parse_provenance(text, file), target);
    system.planner = "none";
    system.scheduler = scheduler;
    system.chooses = "nothing: the user's own plan";
    system.planned.plan = std::move(plan);
    system.planned.candidates = 1;
  }
  return systems;
}

void run_systems(std::vector<System>& systems, const Target& target, const ComparisonInput& input) {
  const auto searches =
      std::stable_partition(systems.begin(), systems.end(), std::not_fn(&System::is_search));
  const std::span<System> others(systems.begin(), searches);
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (!others[i].planned.plan) plan_system(others[i], others.first(i), target, input);
  }
  const auto run = [&](std::size_t i) { run_choices(others[i], target, input); };
  if (std::ranges::any_of(
          others, [](const System& system) { return system.scheduler.limits.time_limit.has_value(); })) {
    for (std::size_t i = 0; i < others.size(); ++i)
      run(i);  // one at a time, so that each has all cores for
               // its time limit
  } else {
    parallel_for(others.size(), run);
  }
  for (auto search = searches; search != systems.end(); ++search) {
    run_search(*search, others, target, input);
  }
}

bool prefer_rows_that_fit(std::vector<System>& systems, const SearchOptions& options) {
  const auto search = std::ranges::find_if(systems, &System::is_search);
  if (search == systems.end() || search->fits_further != false) return false;
  take_better_row(*search, systems, options);
  return search->fits_further != false;
}

Seconds training_time(const System& system, const Training& training) {
  return Seconds(training.samples / system.evaluation->samples_per_s * (1 + training.overhead));
}

Table comparison_table(const std::vector<System>& systems) {
  Table table;
  table.columns = {{"system", "system"},
                   {"plan", "plan"},
                   {"recomputation", "recompute"},
                   {"scheduler", "scheduler"},
                   {"schedule_objective", "objective"},
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
                   {"speedup_vs_megatron", "x megatron", 2},
                   {"chooses", "free to choose"}};
  const double pytorch = samples_per_s(systems, "pytorch");
  const double megatron = samples_per_s(systems, "megatron");
  for (const System& system : systems) {
    if (!system.evaluation) {
      table.rows.push_back({system.name, std::string("infeasible"), Cell(), system.scheduler.name});
      table.rows.back().resize(table.columns.size());
      table.rows.back().back() = system.chooses;
      continue;
    }
    const Evaluation& e = *system.evaluation;
    table.rows.push_back({system.name, marked(*system.planned.plan, system.fits_further != false),
                          to_string(system.planned.plan->recomputation), system.scheduler.name,
                          to_string(system.schedule.iterations.back().objective), mean_gap(system.schedule),
                          status_counts(system.schedule), e.mean.count(), e.p95.count(), e.samples_per_s,
                          e.llm_tokens_per_s, e.mfu, e.idle_fraction, e.peak_memory.count,
                          speedup(e.samples_per_s, pytorch), speedup(e.samples_per_s, megatron),
                          system.chooses});
  }
  return table;
}

namespace {

/// Returns the column that lists the free choices of each system.
std::ptrdiff_t choices_column(const Table& table) {
  return std::ranges::find(table.columns, "chooses", &Column::key) - table.columns.begin();
}

}  // namespace

Table without_choices(const Table& table) {
  return columns_of(table, [](const Column& column) { return column.key != "chooses"; });
}

std::string comparison_text(const Table& table, const std::function<std::string(const Table&)>& to_text) {
  const auto column = static_cast<std::size_t>(choices_column(table));
  const auto text_of = [](const Cell& cell) { return std::get<std::string>(cell); };
  std::vector<std::pair<std::string, std::string>> choices;  // each with the systems that have it
  for (const std::vector<Cell>& row : table.rows) {
    const auto same = std::ranges::find(choices, text_of(row[column]), [](const auto& c) { return c.first; });
    if (same == choices.end()) {
      choices.emplace_back(text_of(row[column]), text_of(row[0]));
    } else {
      same->second += ", " + text_of(row[0]);
    }
  }
  std::string text = to_text(without_choices(table)) + "\nfree to choose:\n";
  for (const auto& [what, who] : choices) text += fmt::format("  {}: {}\n", who, what);
  return text;
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
