// dflop compare: data-aware plans beside the best data-blind ones, on the same global batches.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "experiments/command.hpp"
#include "experiments/compare_report.hpp"
#include "experiments/options.hpp"
#include "experiments/study.hpp"
#include "solver/schedulers.hpp"
#include "traces/output_file.hpp"
#include "traces/perfetto.hpp"
#include "traces/plan_file.hpp"
#include "traces/schedule_file.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

/// One row of the comparison.
struct System {
  std::string name;
  std::string planner;
  SchedulerChoice scheduler;
  PlanResult planned;
  ScheduleFile schedule;
  std::optional<Evaluation> evaluation;  // absent: infeasible
  Seconds planning{0};                   // measured
};

/// What a training run costs its owner; absent unless --train-samples was given.
struct Training {
  double samples = 0;
  std::optional<double> gpu_hour_cost;
  std::optional<double> gpu_power_w;
};

std::vector<System> systems_to_compare(const SchedulerChoice& scheduler) {
  const SchedulerChoice random{"random", std::nullopt, std::nullopt};
  const auto system = [](std::string name, std::string planner, SchedulerChoice choice) {
    System s;
    s.name = std::move(name);
    s.planner = std::move(planner);
    s.scheduler = std::move(choice);
    return s;
  };
  return {system("pytorch", "pytorch", random), system("megatron", "megatron", random),
          system("dflop-optimizer", "dflop", random), system("dflop", "dflop", scheduler)};
}

void run_system(System& system, const Target& target, const std::vector<Batch>& batches, std::uint64_t seed) {
  if (!system.planned.plan) return;
  const Plan& plan = *system.planned.plan;
  system.schedule = schedule_batches(plan, target, batches, system.scheduler, seed);
  Evaluation evaluation = evaluate(plan, target, system.schedule, 1);
  if (evaluation.peak_memory > target.cluster.gpu.usable_memory()) {
    system.planned.infeasible_reason = fmt::format(
        "{} runs out of memory with the {} scheduler: {:.1f} GiB on the fullest rank, {:.1f} GiB are usable",
        describe(plan), system.scheduler.name, static_cast<double>(evaluation.peak_memory.count) * 0x1p-30,
        static_cast<double>(target.cluster.gpu.usable_memory().count) * 0x1p-30);
    return;
  }
  system.evaluation = std::move(evaluation);
}

double samples_per_s(const std::vector<System>& systems, std::string_view name) {
  for (const System& system : systems) {
    if (system.name == name && system.evaluation) return system.evaluation->samples_per_s;
  }
  return 0;
}

/// value / reference, or nothing where there is no reference.
Cell speedup(double value, double reference) {
  return reference > 0 ? Cell(value / reference) : Cell();
}

Table comparison_table(const std::vector<System>& systems) {
  Table table;
  table.columns = {{"system", "system"},
                   {"plan", "plan"},
                   {"scheduler", "scheduler"},
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
    table.rows.push_back({system.name, describe(*system.planned.plan), system.scheduler.name, e.mean.count(),
                          e.p95.count(), e.samples_per_s, e.llm_tokens_per_s, e.mfu, e.idle_fraction,
                          e.peak_memory.count, speedup(e.samples_per_s, pytorch),
                          speedup(e.samples_per_s, megatron)});
  }
  return table;
}

/// Rounded up to a tenth of a percent: measured time differs from run to run, its bound does not.
double overhead_percent_at_most(Seconds planning, double run_s) {
  return std::ceil(planning.count() / run_s * 1000) / 10;
}

void add_training_columns(Table& table, const std::vector<System>& systems, const Training& training,
                          int gpus) {
  table.columns.push_back({"train_hours", "hours", 2});
  table.columns.push_back({"train_gpu_hours", "GPU-hours", 1});
  if (training.gpu_hour_cost) table.columns.push_back({"train_cost", "cost", 2});
  if (training.gpu_power_w) table.columns.push_back({"train_energy_kwh", "kWh", 1});
  table.columns.push_back({"planning_overhead_percent_at_most", "planning <= %", 1});
  for (std::size_t i = 0; i < systems.size(); ++i) {
    std::vector<Cell>& row = table.rows[i];
    if (systems[i].evaluation) {
      const double run_s = training.samples / systems[i].evaluation->samples_per_s;
      const double gpu_hours = run_s / 3600 * gpus;
      row.push_back(run_s / 3600);
      row.push_back(gpu_hours);
      if (training.gpu_hour_cost) row.push_back(gpu_hours * *training.gpu_hour_cost);
      if (training.gpu_power_w) row.push_back(gpu_hours * *training.gpu_power_w / 1000);
      row.push_back(overhead_percent_at_most(systems[i].planning, run_s));
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

/// The command's parameters and one object per system, with its plan.
std::string comparison_json(const Values& values, const std::vector<System>& systems, const Table& table) {
  nlohmann::ordered_json out;
  out["schema"] = "dflop.compare";
  out["version"] = 1;
  for (const char* name : {"data", "model", "cluster"}) out[name] = values[name].as<std::string>();
  for (const char* name : {"gbs", "iterations", "seed"}) out[name] = values[name].as<std::int64_t>();
  out["systems"] = nlohmann::ordered_json::parse(to_json(table, -1));
  for (std::size_t i = 0; i < systems.size(); ++i) {
    nlohmann::ordered_json& system = out["systems"][i];
    system["plan_description"] = system["plan"];
    system["plan"] = nullptr;
    system["infeasible_reason"] = nullptr;
    if (systems[i].planned.plan)
      system["plan"] = nlohmann::ordered_json::parse(to_json(*systems[i].planned.plan));
    if (!systems[i].evaluation) system["infeasible_reason"] = systems[i].planned.infeasible_reason;
  }
  return out.dump(2) + "\n";
}

std::string command_line(const Values& values) {
  return fmt::format("dflop compare --data {} --model {} --cluster {} --gbs {} --iterations {} --seed {}",
                     values["data"].as<std::string>(), values["model"].as<std::string>(),
                     values["cluster"].as<std::string>(), values["gbs"].as<std::int64_t>(),
                     values["iterations"].as<std::int64_t>(), values["seed"].as<std::int64_t>());
}

void write_outputs(const std::string& directory, const Values& values, const std::vector<System>& systems,
                   const Table& table) {
  const std::filesystem::path base = directory;
  std::vector<ReportSystem> report;
  for (const System& system : systems) {
    report.push_back({system.name, "", 0, nullptr});
    if (!system.evaluation) continue;
    const Evaluation& e = *system.evaluation;
    report.back() = {system.name, describe(*system.planned.plan), e.samples_per_s, &e.timelines.front()};
    write_file_atomically(base / (system.name + ".plan.json"), to_json(*system.planned.plan));
    write_file_atomically(base / (system.name + ".schedule.json"), to_json(system.schedule));
    write_file_atomically(base / (system.name + ".trace.json"), to_perfetto(std::span(e.timelines).first(1)));
  }
  write_file_atomically(base / "compare.json", comparison_json(values, systems, table));
  write_file_atomically(base / "compare.csv", to_csv(table));
  write_file_atomically(base / "report.html",
                        compare_report(fmt::format("{} on {}", values["model"].as<std::string>(),
                                                   values["cluster"].as<std::string>()),
                                       command_line(values), table, report, infeasible_notes(systems)));
  fmt::print(stderr,
             "dflop: wrote {}: report.html, compare.json, compare.csv; per system .plan.json, .schedule.json "
             "and .trace.json (first iteration, open in ui.perfetto.dev)\n",
             directory);
}

/// Makes the directory before the long part, so that an unwritable one is refused at once.
void prepare_directory(const std::string& directory) {
  std::error_code problem;
  std::filesystem::create_directories(directory, problem);
  if (problem || !std::filesystem::is_directory(directory)) {
    throw Error(ErrorKind::output, "the directory could not be made: " + problem.message(), directory);
  }
}

std::optional<Training> read_training(const Values& values) {
  const bool wanted = values.count("train-samples") > 0;
  for (const char* name : {"gpu-hour-cost", "gpu-power-w"}) {
    if (values.count(name) > 0 && !wanted) {
      throw Error(ErrorKind::usage, fmt::format("option '--{}': needs '--train-samples'", name));
    }
  }
  if (!wanted) return std::nullopt;
  Training training;
  training.samples = static_cast<double>(read_integer(values, "train-samples", 1, INT64_MAX));
  if (values.count("gpu-hour-cost") > 0) training.gpu_hour_cost = read_number(values, "gpu-hour-cost", 0);
  if (values.count("gpu-power-w") > 0) training.gpu_power_w = read_number(values, "gpu-power-w", 0);
  return training;
}

int run(const Values& values) {
  const Format format = read_format(values);
  const int gbs = read_gbs(values);
  const int iterations = read_iterations(values);
  const std::uint64_t seed = read_seed(values);
  const PlanOptions plan_options = read_plan_options(values);
  const std::optional<Training> training = read_training(values);
  SchedulerChoice scheduler{values["scheduler"].as<std::string>(), std::nullopt, read_time_limit(values)};
  if (values.count("node-budget") > 0)
    scheduler.node_budget = read_integer(values, "node-budget", 0, INT32_MAX);
  make_scheduler(scheduler.name, SchedulerOptions{});  // refuses an unknown name before the long part
  PreprocessOptions data_options = read_preprocess_options(values);
  const Target target(values["model"].as<std::string>(), values["cluster"].as<std::string>());
  data_options.rule = target.model.preprocess;
  data_options.max_tokens = target.model.max_tokens;
  data_options.seed = seed;
  const std::vector<Sample> samples = load_samples(values["data"].as<std::string>(), data_options);
  const std::vector<Batch> batches = make_batches(samples, gbs, iterations, seed);
  const auto out = read_text(values, "out");
  if (out) prepare_directory(*out);

  std::vector<System> systems = systems_to_compare(scheduler);
  for (System& system : systems) {
    const auto same = std::find_if(systems.begin(), systems.end(), [&](const System& s) {
      return s.planner == system.planner && s.planning.count() > 0;
    });
    const auto start = std::chrono::steady_clock::now();
    system.planned = same != systems.end()
                         ? same->planned
                         : make_plan(system.planner, target, samples, batches, gbs, seed, plan_options);
    const Seconds measured = std::chrono::steady_clock::now() - start;
    system.planning = same != systems.end() ? same->planning : measured;
    run_system(system, target, batches, seed);
    fmt::print(stderr, "dflop: {}: planned in {:.2f} s, {} configurations\n", system.name,
               system.planning.count(), system.planned.candidates);
  }
  Table table = comparison_table(systems);
  if (training) add_training_columns(table, systems, *training, target.cluster.gpus());
  if (out) write_outputs(*out, values, systems, table);
  switch (format) {
    case Format::table:
      fmt::print("{}", to_text(table, terminal_width()));
      break;
    case Format::json:
      fmt::print("{}", comparison_json(values, systems, table));
      break;
    case Format::csv:
      fmt::print("{}", to_csv(table));
  }
  for (const std::string& note : infeasible_notes(systems)) fmt::print(stderr, "dflop: {}\n", note);
  const bool any =
      std::any_of(systems.begin(), systems.end(), [](const System& s) { return s.evaluation.has_value(); });
  return any ? 0 : 3;
}

}  // namespace

Command compare_command() {
  Command command{
      "compare",
      "data-aware plans beside the best data-blind ones",
      "Plans with each system, schedules the same global batches and simulates them:\n"
      "  pytorch          one tp, pp, dp for all; encoder and LLM layers split evenly by count; random "
      "microbatches\n"
      "  megatron         one tp, pp, dp for all; encoder on the first stage; random microbatches\n"
      "  dflop-optimizer  the published data-aware optimizer; random microbatches\n"
      "  dflop            the same plan with the microbatch scheduler\n"
      "Both baselines are the best of all their configurations and microbatch counts on these very batches.\n"
      "p95 is over iterations; MFU leaves recomputation out; idle is the mean over ranks; x is the speedup.",
      "dflop compare --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 "
      "--gbs 512 "
      "--iterations 8 --seed 1",
      Options("options", 110, 60),
      run};
  add_data_options(command.options);
  add_target_options(command.options);
  add_batch_options(command.options);
  add_plan_options(command.options);
  add_scheduler_options(command.options);
  command.options.add_options()  //
      ("train-samples", po::value<std::int64_t>()->value_name("N"),
       "also say what training on N samples takes: hours, GPU-hours and the share of planning")  //
      ("gpu-hour-cost", po::value<double>()->value_name("C"), "and costs, at C a GPU-hour")      //
      ("gpu-power-w", po::value<double>()->value_name("W"), "and draws, at W watts a GPU")       //
      ("out", po::value<std::string>()->value_name("DIR"),
       "write report.html, compare.json, compare.csv and each system's plan, schedule and trace");
  add_format_option(command.options);
  return command;
}

}  // namespace dflop
