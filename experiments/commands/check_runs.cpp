// dflop check runs compares runs of several plans, live or recorded, with their predictions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.hpp"
#include "experiments/checks/runs/recording.hpp"
#include "experiments/checks/runs/study.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/stop_signals.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/live/device_options.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/named_profile.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/specs.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::array<const char*, 4> kRunOutputs = {"report.html", "fidelity.json", "fidelity.csv",
                                                    "operations.csv"};

/// Returns the options for plans that run live.
Options live_options() {
  Options options;
  add_foreign_profile_option(options);
  add_measuring_time_option(options, 4);
  add_training_steps_option(options, whole("N", 12));
  add_uncounted_steps_option(options);
  add_gbs_option(options, whole("N"));
  add_seed_option(options);
  add_live_options(options);
  add_cores_option(options);
  add_data_options(options, "traces/datasets/vision_mix.csv");
  return options;
}

/// A Request holds all options for plans that run live, from the command line and its files.
struct Request {
  PlanGrid grid;
  int gbs = 0;
  std::shared_ptr<const Target> target;
  std::vector<NamedPlan> plans;
  FidelityOptions options;
  bool foreign_profile = false;
  bool extrapolate = false;
  Seconds budget{0};  ///< for measuring the profiles of one plan
};

/// Calls check(plan) for each plan. @throws Error as check() does, naming the plan and `file`
template <typename Check>
void check_plans(const Request& request, const std::string& file, const Check& check) {
  for (const NamedPlan& named : request.plans) {
    try {
      check(named.plan);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("plan '{}': {}", named.name, error.message()), file);
    }
  }
}

Request read_request(const Values& values) {
  Request request;
  const auto file = values["plans"].as<std::string>();
  request.grid = parse_plan_grid(read_text_file(file), file);
  const PlanGrid& grid = request.grid;
  request.gbs = read_optional_integer<int>(values, "gbs", 1, kMaxGbs).value_or(grid.gbs);
  request.target =
      std::make_shared<const Target>(grid.model, grid.cluster, file, nullptr, nullptr, Use::shape);
  request.plans = complete_plans(grid, file, request.gbs, request.target->model, request.target->cluster);
  FidelityOptions& options = request.options;
  options.device = read_local_device(values);
  options.dtype = read_dtype(values);
  options.steps = read_integer(values, "steps", 1, kMaxCheckedSteps);
  options.warm_up = read_integer(values, "warm-up", 1, kMaxCheckedSteps);
  options.device.cores = read_cores(values, options.device);
  options.device.device_cores = read_device_cores(values, options.device);
  check_plans(request, file, [&](const Plan& plan) {
    require_device(options.device, plan);
    if (values.count("profile") == 0) require_measurable(plan, request.target->model);
  });
  options.seed = read_seed(values);
  request.foreign_profile = read_foreign_profile(values);
  request.extrapolate = values["extrapolate"].as<bool>();  // also for measured profiles
  request.budget = Seconds(read_number(values, "budget-s", 0, kMaxCheckBudgetS));
  options.scheduler.name = "lpt";
  return request;
}

BatchStream make_request_batches(const Request& request, const Values& values, DataOrigin& origin) {
  const std::uint64_t seed = request.options.seed;
  auto samples = read_samples(values, request.target->model, seed, "data", &origin);
  return {std::make_shared<const std::vector<Sample>>(std::move(samples)), request.gbs, seed};
}

/// Measures the profile of a plan or, according to `what`, a part of it.
/// @throws Stopped after the current part if a signal arrives
ProfileTables measure(const Request& request, const Plan& plan, const MeasureRequest& what,
                      const StopOnSignals& signals) {
  return measure_for_plan(request.target->model, plan,
                          {request.options.device, request.options.dtype, request.options.seed,
                           request.budget * what.part, what.points},
                          [&] { signals.check(); });
}

/// Checks that the profile fits each plan.
/// @throws Error (input) naming the plan that the profile does not fit
void check_profile(const Request& request, const ProfileTables& profile, const std::string& file) {
  check_plans(request, file, [&](const Plan& plan) {
    const std::unique_ptr<World> world = make_live_world(request.options.device, plan);
    require_profile(profile, file, plan,
                    {request.target->model, *world, request.options.dtype, request.foreign_profile});
  });
}

/// Studies one plan after the other. If a plan fails, its row says why, and the other plans still run.
/// `profile` is for all plans; if it is null, each plan has its own.
/// @throws Stopped after the current step or measured part if a signal arrived
void study_plans(const Request& request, const BatchStream& batches, const NamedProfile* profile,
                 const StopOnSignals& signals, std::vector<PlanFidelity>& results) {
  const std::int64_t each = request.options.warm_up + request.options.steps;
  const std::int64_t all = each * static_cast<std::int64_t>(request.plans.size());
  Progress progress("running plans");
  const FidelityInput input{
      request.target,
      batches,
      profile != nullptr ? &profile->tables : nullptr,
      profile != nullptr ? profile->path : "the profile",
      request.extrapolate,
      [&](const Plan& plan, const MeasureRequest& what) { return measure(request, plan, what, signals); }};
  for (const NamedPlan& plan : request.plans) {
    std::int64_t done = each * std::ssize(results);
    const std::string name = printable(plan.name);
    try {
      results.push_back(study_plan(plan, input, request.options, [&] {
        progress.update(++done, all);
        signals.check();
      }));
      const PlanFidelity& last = results.back();
      progress.note(fmt::format("plan '{}': {:.2f} ms, predicted {:+.1f} %", name,
                                1e3 * last.measured().count(), 100 * last.error()));
    } catch (const Stopped&) {
      throw;
    } catch (const std::exception& error) {
      PlanFidelity failed;
      failed.name = plan.name;
      failed.plan = describe(plan.plan);
      failed.failure = error.what();
      results.push_back(std::move(failed));
      progress.note(fmt::format("plan '{}' failed: {}", name, printable(error.what())));
    }
  }
}

/// Returns the file name of the profile that predicted a plan.
std::string profile_file(std::size_t plan) {
  return fmt::format("profile-{}.json", plan + 1);
}

void write_outputs(const std::string& directory, const Provenance& made_by,
                   const std::vector<PlanFidelity>& plans) {
  make_output_directory(directory);
  const std::filesystem::path base(directory);
  StagedOutputs files;
  files.add(base / kRunOutputs[0], fidelity_page(made_by, plans));
  files.add(base / kRunOutputs[1], with_provenance(fidelity_json(plans), made_by));
  files.add(base / kRunOutputs[2], to_csv(fidelity_table(plans)));
  files.add(base / kRunOutputs[3], to_csv(operations_table(plans)));
  std::string profiles;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    if (!plans[p].profile) continue;
    files.add(base / profile_file(p), with_provenance(to_json(*plans[p].profile), made_by));
    profiles += ", " + profile_file(p);
  }
  files.commit();
  say("dflop: wrote {}: report.html, fidelity.json, fidelity.csv, operations.csv{}\n", directory, profiles);
}

/// A Report prints and writes the results.
struct Report {
  explicit Report(const Values& values) : format(read_format(values)), out(read_text(values, "out")) {
    if (!out) return;
    for (const char* file : kRunOutputs) {
      refuse_files_of_others(values, "out", (std::filesystem::path(*out) / file).string());
    }
    check_output_directory(*out, kRunOutputs[0]);
  }

  void write(const Provenance& made_by, const std::vector<PlanFidelity>& plans) const {
    if (out) write_outputs(*out, made_by, plans);
    const auto text = [&] {
      return terminal_text(fidelity_table_with_summary(plans)) + "\n" +
             terminal_text(all_operations_table(plans));
    };
    const auto json = [&] { return fidelity_json(plans); };
    print_result(format, text, json, fidelity_table(plans));
  }

  Format format;
  std::optional<std::string> out;
};

int run_plans(const Values& values) {
  const Report report(values);
  const Request request = read_request(values);
  Provenance made_by = made_here(values, *request.target);
  made_by.gbs = request.gbs;
  const BatchStream batches = make_request_batches(request, values, made_by.data.emplace());
  std::optional<NamedProfile> profile = read_profile(values);
  if (profile) {
    check_profile(request, profile->tables, profile->path);
    made_by.profile = {profile->path, profile->hash};
  }
  std::vector<PlanFidelity> done;
  const HostLoad load;
  const auto write = [&] {
    made_by.machine->others = load.others();
    report.write(made_by, done);
  };
  const auto report_part = [&](const std::string& why) {
    say("dflop: {}; {} of {} plans are done\n", why, done.size(), request.plans.size());
    if (!done.empty()) write();
  };
  const StopOnSignals signals;
  try {
    study_plans(request, batches, profile ? &*profile : nullptr, signals, done);
  } catch (const Stopped& stopped) {
    report_part(stopped.what());
    return stopped.exit_code();
  }
  write();
  return std::ranges::any_of(done, &PlanFidelity::failed) ? 1 : 0;
}

int judge_recordings(const Values& values) {
  const Options live = live_options();
  for (const Option& option : live.rows())
    refuse_given(values, {option.name.c_str()}, "applies only to live runs, found with '--recordings'");
  const std::optional<NamedProfile> profile = read_profile(values);
  if (!profile) refuse_option("recordings", "needs '--profile FILE', which predicts the recorded steps");
  const Report report(values);
  Provenance made_by = made_here(values);
  made_by.profile = {profile->path, profile->hash};
  std::vector<PlanFidelity> judged;
  for (const std::string& file : read_texts(values, "recordings")) {
    const TimelineFile recording = parse_timelines(read_text_file(file), file);
    judged.push_back(judge_recording(recording, file, *profile, values["extrapolate"].as<bool>()));
    if (recording.made_by && !made_by.model) made_by.model = recording.made_by->model;
  }
  report.write(made_by, judged);
  return 0;
}

int run_fidelity(const Values& values) {
  const bool recordings = values.count("recordings") > 0;
  const bool plans = values.count("plans") > 0;
  if (recordings && plans) refuse_option("recordings", "cannot be combined with '--plans'");
  if (!recordings && !plans)
    refuse_option("plans",
                  "expected this option or '--recordings', found "
                  "neither");
  return recordings ? judge_recordings(values) : run_plans(values);
}

}  // namespace

Command check_runs_command() {
  Command command{
      .name = "check runs",
      .task = Task::check,
      .summary = "compare runs of several plans, live or recorded, with their predictions",
      .description =
          R"(Trains for some steps under each plan of a grid, on the same batches, or uses recordings of such
runs. Predicts each step in two ways: from a profile of the same device through the simulator (error %), and
from the step's own recorded durations through the simulator (engine error %). This separates errors of the
cost model from errors of the engine. Times are medians over the steps. Below the plans, a table shows the
operations, by the module of their stage, with means. Measured seconds differ from run to run.

Without --profile, several profiles are measured between the steps of each live plan, at its tp and with as many
busy ranks as compute at a time, for at least --budget-s, and their medians predict; on a GPU one profile is
measured after the steps. Warm-up steps do not count, and learned kernels are not saved.

A recording comes from 'dflop train --record' or, for other programs, from 'dflop import --plan --schedule';
each file is a row. The first step of a run is a warm-up and does not count if there are several steps.)",
      .example =
          "dflop check runs --plans traces/grids/tiny-vlm-quick.json --steps 3 --budget-s 1 --out fidelity",
      .run = run_fidelity,
      .old_name = "fidelity",
  };
  command.options.add({
      {"plans", text("FILE").common(),
       "run these plans live: file with model, cluster, gbs and plans, such as "
       "traces/grids/tiny-vlm-host.json"},
      {"recordings", texts("FILE...").common(),
       "instead of live runs: timelines that record the shapes of stages and work (.json, .json.gz); "
       "requires --profile"},
  });
  add_profile_file_option(command.options);
  command.options.add(
      OptionGroup::output,
      {{"out", text("DIR").common(),
        "write report.html, fidelity.json, fidelity.csv, operations.csv and the profile of each plan"}});
  add_extrapolate_option(command.options);
  command.options.append(live_options());
  return command;
}

}  // namespace dflop
