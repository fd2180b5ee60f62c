// dflop correction runs the study of Adaptive Correction.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "costmodel/correction/drift.hpp"
#include "experiments/checks/paper/correction_report.hpp"
#include "experiments/checks/paper/correction_study.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/scheduler_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/made_by.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/files/correction.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMaxStudied = 10'000;  // iterations
constexpr double kMaxLatency = 100;

/// Reads "0.01,0.03". @throws Error (usage)
std::vector<double> read_list(const Values& values, const std::string& name, double most) {
  const auto text = values[name].as<std::string>();
  std::vector<double> numbers;
  for (const std::string_view part : split(text, ',')) {
    double& number = numbers.emplace_back();
    if (!parse_number(part, number) || !(number > 0 && number <= most))
      refuse_value(name, fmt::format("a comma-separated list of numbers above 0 and at most {}", most), text);
  }
  return numbers;
}

std::vector<Anomaly> read_anomalies(const Values& values, int iterations) {
  Anomaly anomaly;
  const auto module = values["module"].as<std::string>();
  if (module != "llm" && module != "encoder") refuse_value("module", "llm or encoder", module);
  anomaly.encoder = module == "encoder";
  anomaly.shifted = values["shifted"].as<bool>();
  anomaly.begin = read_optional_integer<int>(values, "appear", 0, iterations - 1).value_or(anomaly.begin);
  anomaly.end =
      read_optional_integer<int>(values, "vanish", anomaly.begin + 1, iterations - 1).value_or(anomaly.end);
  std::vector<Anomaly> anomalies;
  const std::vector<double> latencies = read_list(values, "latencies", kMaxLatency);
  for (const double fraction : read_list(values, "fractions", 1)) {
    for (const double latency : latencies) {
      anomaly.fraction = fraction;
      anomaly.latency = latency;
      anomalies.push_back(anomaly);
    }
  }
  return anomalies;
}

int read_studied_iterations(const Values& values, int gbs) {
  const int iterations = read_iterations(values, gbs);
  if (iterations < 2 || iterations > kMaxStudied) {
    refuse_value("iterations", fmt::format("a whole number from 2 to {}", kMaxStudied),
                 std::to_string(iterations));
  }
  return iterations;
}

SwitchOptions read_switch(const Values& values) {
  SwitchOptions options;
  options.measure = static_cast<int>(read_integer(values, "measure", 1, kMaxStudied));
  options.window = static_cast<int>(read_integer(values, "window", 1, kMaxStudied));
  options.probe = static_cast<int>(read_integer(values, "probe", 0, kMaxStudied));
  return options;
}

/// Reads how many global batches of new data are examined.
int read_drift_window(const Values& values, int gbs) {
  const auto window = static_cast<int>(read_integer(values, "window", 1, kMaxStudied));
  if (std::int64_t{window} * gbs > kMaxSamplesInAll) {
    refuse_option("window", fmt::format("expected at most {} global batches of {} samples with --new-data "
                                        "({} samples in all), found {}",
                                        kMaxSamplesInAll / gbs, gbs, kMaxSamplesInAll, window));
  }
  return window;
}

/// Compares the shapes of new data with the shapes that the plan was made for.
DriftAdvice drift_of(const Values& values, const Target& target, const std::vector<Sample>& profile, int gbs,
                     std::uint64_t seed) {
  const int window = read_drift_window(values, gbs);
  const std::vector<Sample> samples = read_samples(values, target.model, seed, "new-data");
  DriftOptions options;
  options.seed = seed;
  const ShapeDrift drift(target.model, profile, options);
  // With too few samples, batches would repeat them, which adds no information.
  if (samples.size() <= static_cast<std::size_t>(window) * static_cast<std::size_t>(gbs)) {
    return drift.advise(samples);
  }
  Batch recent;
  for (const Batch& batch : make_batches(samples, gbs, window, seed)) {
    recent.insert(recent.end(), batch.begin(), batch.end());
  }
  return drift.advise(recent);
}

void print_study(Format format, const std::vector<CorrectionCell>& cells,
                 const std::optional<DriftAdvice>& drift) {
  const Table table = correction_table(cells);
  const auto text = [&] {
    if (!drift) return terminal_text(table);
    return terminal_text(table) + section("new data against the data planned for", drift_table(*drift)) +
           "\n" + drift_sentence(*drift) + "\n";
  };
  const auto json = [&] {
    nlohmann::ordered_json all;
    all["cells"] = json_of(table);
    if (drift) {
      all["drift"] = json_of(drift_table(*drift));
      all["replan"] = drift->replan;
    }
    return json_text(all);
  };
  // CSV has only one table, so the verdict goes to standard error.
  if (drift && format != Format::table && format != Format::json)
    say("dflop: note: new data: {}\n", drift_sentence(*drift));
  print_result(format, text, json, table);
}

int run_correction(const Values& values) {
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const auto html = read_output(values, "html");
  const std::uint64_t seed = read_seed(values);
  const auto plan_path = values["plan"].as<std::string>();
  Plan plan = parse_plan(read_text_file(plan_path), plan_path);
  plan.respect_memory = false;  // the study measures times only, so batches that do not fit also run
  const int iterations = read_studied_iterations(values, plan.gbs);
  const std::vector<Anomaly> anomalies = read_anomalies(values, iterations);
  if (out && anomalies.size() != 1) {
    refuse_option("out", fmt::format("expected one fraction and one latency (--fractions, --latencies), "
                                     "found {} pairs",
                                     anomalies.size()));
  }
  const SchedulerChoice scheduler = read_scheduler(values);
  const SwitchOptions switching = read_switch(values);
  const double tracking_cost = read_number(values, "tracking-cost", 0, 0.9);
  const double jitter = read_number(values, "jitter", 0, 1);
  const Target target(plan.model, plan.cluster, plan_path);
  validate(plan, target.model, target.cluster, plan_path);
  DataOrigin data;
  const std::vector<Sample> samples = read_samples(values, target.model, seed, "data", &data);
  std::optional<DriftAdvice> drift;
  if (values.count("new-data") > 0) drift = drift_of(values, target, samples, plan.gbs, seed);
  const std::vector<Batch> batches = make_batches(samples, plan.gbs, iterations, seed);

  const CorrectionStudy study{plan, target, batches, scheduler, seed, tracking_cost, jitter, switching};
  Progress progress("correcting");
  const std::vector<CorrectionCell> cells = run_correction_study(
      study, anomalies, [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  StagedOutputs outputs;
  if (out) {
    Provenance made_by = made_here(values, target, data);
    made_by.plan = origin_of(plan, plan_path);
    outputs.add(*out, with_provenance(to_json(CorrectionFile{plan.model, plan.cluster, cells[0].on.learned}),
                                      made_by));
  }
  if (html) outputs.add(*html, correction_page(made_here(values, target, data), plan, cells));
  outputs.commit();
  print_study(format, cells, drift);
  return 0;
}

}  // namespace

Command correction_command() {
  Command command{
      .name = "correction",
      .task = Task::check,
      .summary = "study Adaptive Correction: slow samples, its gains, and when it turns itself off",
      .description =
          R"(Runs a plan on simulated hardware on which the samples of some shapes take longer than the cost
model predicts: each of these samples lengthens every stage of its module by a fraction of the largest stage's
duration. Prints a row for each fraction of slow samples and latency. gain is the throughput relative to
schedules without correction; net subtracts the cost of tracking; perfect schedules with the real costs of the
hardware. These columns cover the second half of the iterations; the columns of the switch cover all
iterations. For both rules of the switch, the table shows whether tracking is on at the end, since when, and
when it went on and off. Under keep, the learned correction stays in use while learning is off.)",
      .example =
          "dflop correction --plan plan.json --data traces/datasets/vision_mix.csv --fractions 0.01,0.05 "
          "--latencies 0.5 --html correction.html",
      .run = run_correction,
  };
  add_plan_option(command.options, text("FILE").required());
  add_data_options(command.options);
  add_iterations_option(command.options, 64);
  add_seed_option(command.options);
  command.options.add({
      {"fractions", text("LIST", "0.01,0.03,0.05").common(),
       "fractions of samples that are slow; all samples of a bucket of shapes are slow, or none"},
      {"latencies", text("LIST", "0.125,0.25,0.5,0.75,1").common(),
       "delays of each slow sample, as multiples of the largest stage's duration"},
      {"module", text("llm|encoder", "llm"), "module that the slow samples slow down"},
      {"shifted", flag(),
       "offset the buckets of slow samples by half a bucket from the buckets in which the correction learns"},
      {"appear", whole("K"), "first iteration with slow samples"},
      {"vanish", whole("K"), "first iteration in which no sample is slow any more"},
      {"tracking-cost", number("C", 0.04), "fraction of throughput that tracking costs"},
      {"jitter", number("SIGMA", 0.02), "sigma of the log-normal noise on every instruction"},
      {"measure", whole("N", 4), "measure the cost of tracking in N iterations with it and N without"},
      {"window", whole("I", 8),
       "iterations over which the benefit is averaged; for --new-data, global batches to examine"},
      {"probe", whole("P", 8),
       "under the keep rule, while learning is off: track one in P iterations to check that the correction "
       "still holds; 0: never"},
      {"new-data", text("FILE"), "data set that training uses now; reports whether it needs a new plan"},
  });
  add_scheduler_option(command.options, text(joined(scheduler_names()), "lpt"));
  add_work_option(command.options);
  command.options.add(
      OptionGroup::output,
      {{"out", text("FILE").common(),
        "write the learned correction as JSON; requires a single value in --fractions and in --latencies"}});
  add_html_option(command.options);
  return command;
}

}  // namespace dflop
