// dflop plan: chooses a plan.
#include <fmt/format.h>

#include <chrono>

#include "core/error.hpp"
#include "experiments/command.hpp"
#include "experiments/options.hpp"
#include "experiments/study.hpp"
#include "solver/planners.hpp"
#include "traces/output_file.hpp"
#include "traces/plan_file.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

int run(const Values& values) {
  const auto planner = values["planner"].as<std::string>();
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const int gbs = read_gbs(values);
  const int iterations = read_iterations(values, gbs);
  const std::uint64_t seed = read_seed(values);
  const PlanOptions plan_options = read_plan_options(values);
  make_planner(planner);  // refuses an unknown name before the long part
  const Target target(values["model"].as<std::string>(), values["cluster"].as<std::string>());
  const std::vector<Sample> samples =
      load_samples(values["data"].as<std::string>(), read_preprocess_options(values, target.model, seed));
  const std::vector<Batch> batches = make_batches(samples, gbs, iterations, seed);

  const auto start = std::chrono::steady_clock::now();
  const PlanResult result = make_plan(planner, target, samples, batches, gbs, seed, plan_options);
  const Seconds seconds = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "dflop: planned in {:.2f} s, {} configurations\n", seconds.count(), result.candidates);
  if (!result.plan) {
    fmt::print(stderr, "dflop: infeasible: {}\n", result.infeasible_reason);
    return 3;
  }
  if (out) write_file_atomically(*out, to_json(*result.plan));
  if (format == Format::json) {
    fmt::print("{}", to_json(*result.plan));
    return 0;
  }
  const Table table{
      {{"planner", "planner"}, {"plan", "plan"}, {"objective_s", "objective s", 4}, {"gpus", "GPUs"}},
      {{planner, describe(*result.plan), result.objective.count(),
        static_cast<std::int64_t>(result.plan->ranks())}}};
  print_table(table, format);
  return 0;
}

}  // namespace

Command plan_command() {
  Command command{
      "plan",
      "choose a plan for a model, a cluster and data",
      "Prints the plan and its planner's objective: for dflop the published estimate of the mean iteration\n"
      "time, for the baselines (the best of all their uniform configurations) the simulated mean over the\n"
      "global batches with random microbatches. Exit code 3 if nothing fits, saying why.",
      "dflop plan --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 "
      "--gbs 512 --out plan.json",
      command_options(),
      run};
  add_data_options(command.options);
  add_target_options(command.options);
  add_batch_options(command.options);
  command.options.add_options()  //
      ("planner", po::value<std::string>()->default_value("dflop")->value_name(joined(planner_names())),
       "who chooses")  //
      ("out", po::value<std::string>()->value_name("FILE"), "write the plan as JSON");
  add_plan_options(command.options);
  add_format_option(command.options);
  return command;
}

}  // namespace dflop
