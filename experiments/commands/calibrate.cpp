// dflop calibrate fits a GPU type's parameters to published measurements.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "experiments/checks/published/calibration.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/made_by.hpp"
#include "traces/files/cluster_notes.hpp"
#include "traces/files/specs.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxFolds = 100;
constexpr double kAtBound = 1e-3;      // as a fraction of the bound
constexpr double kTooFarToPlan = 0.2;  // compared plans differ by less than this

/// SetErrors hold the in-sample and held-out errors of one data set.
struct SetErrors {
  ErrorSummary in_sample;
  ErrorSummary held_out;
  std::optional<ErrorSummary> new_widths;  ///< if there is more than one model width
};

struct Calibration {
  std::vector<PreparedSet> sets;
  ClusterSpec start;
  ClusterNotes notes;  ///< notes of the starting cluster
  ClusterSpec fitted;
  std::vector<SetErrors> errors;
};

int parts_of(const std::vector<std::vector<int>>& fold) {
  std::set<int> parts;
  for (const std::vector<int>& numbers : fold) parts.insert(numbers.begin(), numbers.end());
  return static_cast<int>(parts.size());
}

Calibration calibrate(std::vector<PreparedSet> sets, const ClusterFile& base, int folds, std::uint64_t seed) {
  const ClusterSpec& start = base.cluster;
  Calibration result{std::move(sets), start, base.notes, {}, {}};
  const auto random = random_folds(result.sets, folds, seed);
  const auto families = family_folds(result.sets);
  const int random_parts = parts_of(random);
  const int family_parts = parts_of(families) > 1 ? parts_of(families) : 0;
  Progress progress("calibrating");
  const auto tell = [&](int done) { progress.update(done, random_parts + family_parts + 1); };

  RowMask all;
  for (const PreparedSet& set : result.sets) all.emplace_back(set.runs.size(), true);
  tell(0);
  result.fitted = fit(result.sets, all, start, base.notes);
  const HeldOut held =
      cross_validate(result.sets, random, start, base.notes, [&](int part, int) { tell(1 + part); });
  HeldOut new_widths;
  if (family_parts > 0) {
    new_widths = cross_validate(result.sets, families, start, base.notes,
                                [&](int part, int) { tell(1 + random_parts + part); });
  }
  for (std::size_t s = 0; s < result.sets.size(); ++s) {
    const PreparedSet& set = result.sets[s];
    SetErrors errors{summarize(time_errors(set.set, predict(set, result.fitted))), summarize(held.errors[s]),
                     std::nullopt};
    if (family_parts > 0) errors.new_widths = summarize(new_widths.errors[s]);
    result.errors.push_back(errors);
  }
  return result;
}

Table errors_table(const Calibration& result) {
  Table table;
  table.columns = {{"file", "file"},
                   {"rows", "rows"},
                   {"in_sample_mape_percent", "in sample mean %", 2},
                   {"held_out_mape_percent", "held out mean %", 2},
                   {"held_out_median_ape_percent", "median %", 2},
                   {"held_out_p95_ape_percent", "p95 %", 2},
                   {"held_out_max_ape_percent", "max %", 2},
                   {"new_widths_mape_percent", "new widths mean %", 2}};
  for (std::size_t s = 0; s < result.sets.size(); ++s) {
    const SetErrors& e = result.errors[s];
    table.rows.push_back({result.sets[s].set.file, result.sets[s].runs.size(), 100 * e.in_sample.mean,
                          100 * e.held_out.mean, 100 * e.held_out.median, 100 * e.held_out.p95,
                          100 * e.held_out.max, e.new_widths ? Cell{100 * e.new_widths->mean} : Cell{}});
  }
  return table;
}

/// Returns whether the data determined a parameter. Other parameters keep their starting values.
bool is_fitted(const Calibration& result, const FitParameter& parameter) {
  return parameter.get(result.fitted) != parameter.get(result.start);
}

/// Returns whether the fitted value is at a bound of the parameter's range.
bool ends_at_bound(const Calibration& result, const FitParameter& parameter) {
  const double value = parameter.get(result.fitted);
  const auto near = [&](double bound) { return std::abs(value / bound - 1) < kAtBound; };
  return is_fitted(result, parameter) && (near(parameter.lower) || near(parameter.upper));
}

Table parameters_table(const Calibration& result) {
  Table table;
  table.columns = {
      {"parameter", "parameter"}, {"start", "start"},       {"fitted", "fitted"}, {"lower", "lower"},
      {"upper", "upper"},         {"at_bound", "at bound"}, {"kept", "kept"}};
  for (const FitParameter& parameter : fit_parameters(result.start, result.notes)) {
    const bool fitted = is_fitted(result, parameter);
    const auto text = [](double x) { return fmt::format("{:.4g}", x); };
    table.rows.push_back({parameter.key, text(parameter.get(result.start)),
                          fitted ? Cell{text(parameter.get(result.fitted))} : Cell{}, text(parameter.lower),
                          text(parameter.upper), ends_at_bound(result, parameter), !fitted});
  }
  return table;
}

/// Returns the parameters that were fitted or, if not `fitted`, those that were kept.
std::vector<FitParameter> parameters_of(const Calibration& result, bool fitted) {
  std::vector<FitParameter> parameters = fit_parameters(result.start, result.notes);
  std::erase_if(parameters,
                [&](const FitParameter& parameter) { return is_fitted(result, parameter) != fitted; });
  return parameters;
}

Json fit_json(const Calibration& result, int folds, std::uint64_t seed) {
  const auto keys = [&](bool fitted) {
    Json list = Json::array();
    for (const FitParameter& parameter : parameters_of(result, fitted)) list.push_back(parameter.key);
    return list;
  };
  Json fit;
  fit["start"] = result.start.name;
  fit["folds"] = folds;
  fit["seed"] = seed;
  fit["parameters"] = keys(true);
  fit["kept"] = keys(false);
  fit["sets"] = json_of(errors_table(result));
  return fit;
}

/// Returns the largest mean held-out error of all files.
double held_out_error(const Calibration& result) {
  double error = 0;
  for (const SetErrors& errors : result.errors) error = std::max(error, errors.held_out.mean);
  return error;
}

/// Returns whether the starting cluster was itself fitted. If it was fitted to these rows, no error is from
/// unseen rows.
bool starts_fitted(const Calibration& result) {
  return result.notes.grade == Grade::fitted;
}

/// Describes how many nodes the rows were measured on, as in "rows of one node".
std::string describe_rows(const Calibration& result) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = 0;
  const std::int64_t gpus = result.start.gpus_per_node;
  for (const PreparedSet& set : result.sets) {
    for (const Program& program : set.programs) {
      const std::int64_t nodes = round_up(program.ranks(), gpus) / gpus;
      least = std::min(least, nodes);
      most = std::max(most, nodes);
    }
  }
  if (most == 1) return "rows of one node";
  return fmt::format("rows of {}{} nodes", least < most ? fmt::format("{} to ", least) : "", most);
}

/// Returns the grade: the error with the rows that it was measured on, and the grade of the starting cluster
/// for the parameters that were not fitted.
Json grade_of(const Calibration& result) {
  std::string of = fmt::format("held-out iteration times of {}:", describe_rows(result));
  for (std::size_t s = 0; s < result.sets.size(); ++s) {
    const double mean = result.errors[s].held_out.mean;
    of += fmt::format("{} {} of {} ({:.2f} %)", s > 0 ? "," : "", result.sets[s].runs.size(),
                      result.sets[s].set.file, 100 * mean);
  }
  double error = held_out_error(result);
  if (starts_fitted(result)) {
    error = std::max(error, result.notes.error.value_or(0));
    of += fmt::format("; {} was fitted before, perhaps to some of these rows", result.start.name);
  }
  const std::vector<FitParameter> kept = parameters_of(result, false);
  constexpr int kBetweenNodes = 2;  // parameters: latency and bandwidth
  const auto between =
      std::ranges::count_if(kept, [](const FitParameter& p) { return p.key.starts_with("inter_node."); });
  if (!kept.empty()) {
    of += fmt::format("; {} parameters{} are not fitted but taken from {}: {}", kept.size(),
                      between == kBetweenNodes ? ", those between nodes among them," : "", result.start.name,
                      describe(result.notes));
  }
  return {{"kind", to_string(Grade::fitted)}, {"error", error}, {"of", of}};
}

/// Returns the starting cluster's file with the fitted values.
std::string fitted_file(const Calibration& result, const ClusterFile& base, Json fit,
                        const std::string& out) {
  const Json before = Json::parse(base.json);
  std::vector<std::pair<std::string, double>> numbers;
  for (const FitParameter& parameter : parameters_of(result, true))
    numbers.emplace_back(parameter.key, parameter.get(result.fitted));
  std::string files;
  for (const PreparedSet& set : result.sets) files += (files.empty() ? "" : ", ") + set.set.file;
  std::string source = fmt::format("dflop calibrate: {} fitted to {}", base.cluster.name, files);
  if (before.contains("source"))
    source += fmt::format(". Of {}: {}", base.cluster.name, before["source"].get<std::string>());
  if (before.contains("fit")) fit["of_start"] = before["fit"];
  return changed_cluster(base.json, numbers,
                         {{"name", std::filesystem::path(out).stem().string()},
                          {"source", source},
                          {"grade", grade_of(result)},
                          {"fit", std::move(fit)}});
}

/// Reads the data sets.
/// @throws Error (usage) if there are none, or if the model of a recording is not given
std::vector<PreparedSet> read_sets(const Values& values, const ClusterSpec& cluster) {
  std::vector<PreparedSet> sets;
  for (const std::string& file : read_texts(values, "truth"))
    sets.push_back(prepare(read_ground_truth_on(cluster, file)));
  const std::vector<std::string> traces = read_texts(values, "trace");
  const std::optional<std::string> model = read_text(values, "model");
  if (traces.empty() == model.has_value()) {
    refuse_option("model", "is the model of the recordings of '--trace'; give both options or neither");
  }
  for (const std::string& file : traces) {
    const std::optional<Provenance> made_by = parse_provenance(read_text_file(file), file);
    Provenance asked;
    asked.model = {*model, model_hash(*model)};
    require_together(values, file, made_by, "--model", asked);
    sets.push_back(prepare_recording(file, find_model(*model)));
    say_made_by(file, made_by);
  }
  if (sets.empty())
    throw Error(ErrorKind::usage, "expected measurements: --truth FILE..., --trace FILE... or both");
  return sets;
}

int run_calibrate(const Values& values) {
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const int folds = static_cast<int>(read_integer(values, "folds", 2, kMaxFolds));
  const std::uint64_t seed = read_seed(values);
  const ClusterFile base = find_cluster_file(values["cluster"].as<std::string>());
  const Calibration result = calibrate(read_sets(values, base.cluster), base, folds, seed);
  for (const PreparedSet& set : result.sets)
    note_odd_rows(set.set, predict(set, result.fitted), set.is_recording() ? ": iteration " : ":row ");
  const Json fit = fit_json(result, folds, seed);
  if (out)
    write_file_atomically(*out, with_provenance(fitted_file(result, base, fit, *out), made_here(values)));
  const Table errors = errors_table(result);
  const Table parameters = parameters_table(result);
  const auto text = [&] { return terminal_text(errors) + "\n" + terminal_text(parameters); };
  const auto json = [&] {
    Json all = fit;
    all["parameters"] = json_of(parameters);
    return json_text(all);
  };
  print_result(format, text, json, errors);
  for (const FitParameter& parameter : fit_parameters(result.start, result.notes)) {
    if (!ends_at_bound(result, parameter)) continue;
    say("dflop: note: {} ended at a limit of its range, {:.4g} to {:.4g}, so other parameters may have "
        "absorbed the rest of its effect; start from a cluster (--cluster) with a closer value\n",
        parameter.key, parameter.lower, parameter.upper);
  }
  if (starts_fitted(result)) {
    say("dflop: note: {} is itself the result of a fit{}. If that fit used these rows, none of them are "
        "unseen. --out records the larger of the two errors\n",
        result.start.name,
        result.notes.error ? fmt::format(", with an error of {:.1f} %", 100 * *result.notes.error) : "");
  }
  if (const double error = held_out_error(result); error > kTooFarToPlan)
    say("dflop: note: the mean error of rows that the fit has not seen is {:.0f} %: do not plan with this "
        "cluster; GPU, links and model must match the runs, and each rank must have its own GPU\n",
        100 * error);
  return 0;
}

}  // namespace

Command calibrate_command() {
  Command command{
      .name = "calibrate",
      .task = Task::check,
      .summary = "fit the parameters of a GPU type to published or recorded measurements",
      .description =
          R"(Fits one set of parameters to all rows by bounded least squares of log(predicted / measured).
Every error is also given held out: for rows left out of the fit (--folds), and for models whose widths are
left out of the fit. The rows of a recording of --model (--trace) are its iterations, with one GPU per rank;
several plans separate more parameters than one plan. If the rows do not determine a parameter, it keeps the
value of --cluster, and the table says so.

--out writes a cluster file that can be used like any other: --cluster calibration.json. It is the file of
--cluster with the fitted parameters. Its grade says on how many nodes the rows were measured, and repeats the
grade of the original file for the rest.)",
      .example =
          "dflop calibrate --truth traces/ground_truth/llama_b200.csv --cluster b200 --out calibration.json",
      .run = run_calibrate,
  };
  add_truth_option(command.options, false);
  add_trace_option(command.options, texts("FILE...").repeatable());
  add_model_option(command.options, text("NAME|FILE"));
  add_cluster_option(command.options, text("NAME|FILE").required());
  command.options.add({
      {"folds", whole("K", 5),
       "number of parts into which the rows are split; each part is left out of one fit"},
  });
  add_seed_option(command.options);
  command.options.add(OptionGroup::output,
                      {{"out", text("FILE").common(), "write the fitted cluster to this file"}});
  add_mixed_option(command.options);
  return command;
}

}  // namespace dflop
