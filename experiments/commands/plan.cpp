// dflop plan: chooses a plan.
#include <fmt/format.h>

#include <chrono>

#include "core/error.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/reports/plan_explanation.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/studies/study.hpp"
#include "solver/planners/planners.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/output_file.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

Table plan_table(const std::string& planner, const PlanResult& result) {
  Table table{{{"planner", "planner"},
               {"plan", "plan"},
               {"objective_s", "objective s", 4},
               {"bound_s", "bound s", 4},
               {"gap", "gap %", 2, 100},
               {"gpus", "GPUs"}},
              {{planner, describe(*result.plan), result.objective.count(), Cell(), Cell(),
                static_cast<std::int64_t>(result.plan->ranks())}}};
  if (result.bound) {
    table.rows[0][3] = result.bound->count();
    table.rows[0][4] = result.gap();
  }
  return table;
}

/// Options of the planner search, which the others refuse.
SearchOptions read_search(const Values& values, const std::string& planner) {
  SearchOptions search = read_search_options(values);
  search.scheduler = values["scheduler"].as<std::string>();
  require_one_of("scheduler", scheduler_names(), search.scheduler);
  if (values.count("time-limit") > 0) {
    if (search.budget > 0)
      throw Error(ErrorKind::usage, "option '--time-limit': takes the place of '--budget'");
    search.time_limit = Seconds(read_number(values, "time-limit", 1e-3, 86400));
  }
  if (planner == "search") return search;
  for (const char* name : {"plan-objective", "layout", "budget", "scheduler", "time-limit", "explain"}) {
    const auto& value = values[name];
    if (value.empty() || value.defaulted()) continue;
    throw Error(ErrorKind::usage,
                fmt::format("option '--{}': is of the planner search, found '--planner {}'", name, planner));
  }
  return search;
}

int run(const Values& values) {
  const auto planner = values["planner"].as<std::string>();
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const int gbs = read_gbs(values);
  const int iterations = read_iterations(values, gbs);
  const std::uint64_t seed = read_seed(values);
  const PlanOptions plan_options = read_plan_options(values);
  make_planner(planner);  // refuses an unknown name before the long part
  const SearchOptions search = read_search(values, planner);
  const Target target(values["model"].as<std::string>(), values["cluster"].as<std::string>());
  const std::vector<Sample> samples =
      load_samples(values["data"].as<std::string>(), read_preprocess_options(values, target.model, seed));
  const std::vector<Batch> batches = make_batches(samples, gbs, iterations, seed);

  const auto start = std::chrono::steady_clock::now();
  const PlanResult result = make_plan(planner, target, samples, batches, gbs, seed, plan_options, search);
  const Seconds seconds = std::chrono::steady_clock::now() - start;
  say("dflop: planned in {:.2f} s, {} configurations\n", seconds.count(), result.candidates);
  if (!result.plan) {
    say("dflop: infeasible: {}\n", result.infeasible_reason);
    return 3;
  }
  if (out) write_file_atomically(*out, to_json(*result.plan));
  if (planner == "search") say("dflop: {}\n", describe_proof(result));
  if (values["explain"].as<bool>()) {
    if (format == Format::json) {
      fmt::print("{}", ranking_json(result));
    } else {
      print_table(plan_ranking(result), format);
    }
  } else if (format == Format::json) {
    fmt::print("{}", to_json(*result.plan));
  } else {
    print_table(plan_table(planner, result), format);
  }
  return 0;
}

constexpr const char* kDescription =
    R"(Prints the plan and its planner's objective: for dflop the published estimate of the mean iteration
time, for the baselines (the best of all their uniform configurations) the simulated mean over the
global batches with random microbatches. search chooses layout, parallelism, layers of each stage,
microbatches, schedule and recomputation (those of the options where given) by simulating the global
batches with LPT, the best few in the end with --scheduler; bound is proven for every plan of its space and all
microbatches. Exit code 3 if nothing fits, saying why.)";

}  // namespace

Command plan_command() {
  Command command{
      .name = "plan",
      .summary = "choose a plan for a model, a cluster and data",
      .description = kDescription,
      .example =
          "dflop plan --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 "
          "--gbs 512 --out plan.json",
      .run = run,
  };
  add_data_options(command.options);
  add_target_options(command.options);
  add_batch_options(command.options);
  command.options.add_options()  //
      ("planner", po::value<std::string>()->default_value("dflop")->value_name(joined(planner_names())),
       "who chooses")                                                                  //
      ("out", po::value<std::string>()->value_name("FILE"), "write the plan as JSON")  //
      ("explain", po::bool_switch(),
       "list the ten best plans of the planner search and where their time goes")  //
      ("scheduler",
       po::value<std::string>()
           ->default_value(SearchOptions{}.scheduler)
           ->value_name(joined(scheduler_names())),
       "of the planner search: who makes the microbatches of the best plans in the end, within memory")  //
      ("time-limit", po::value<double>()->value_name("SECONDS"),
       "of the planner search, wall-clock, in place of the budget; the result depends on the machine");
  add_search_options(command.options);
  add_plan_options(command.options);
  add_format_option(command.options);
  return command;
}

}  // namespace dflop
