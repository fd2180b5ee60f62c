#include "experiments/commands/train_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "core/refuse.hpp"
#include "experiments/cli/value_text.hpp"
#include "experiments/options/live/device_options.hpp"
#include "experiments/options/live/held_out_options.hpp"
#include "experiments/options/live/kernel_options.hpp"
#include "experiments/options/live/optimizer_options.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/scheduler_options.hpp"
#include "experiments/presets/presets.hpp"
#include "traces/files/specs.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMaxDataThreads = 256;
constexpr double kMaxSlowLatency = 100;
constexpr const char* kCorrectionRules = "off, always, published or keep";

std::set<std::string> given_options(const Values& values) {
  std::set<std::string> given;
  for (const auto& [name, value] : values) {
    if (!value.defaulted()) given.insert(name);
  }
  return given;
}

/// Reads the scheduler. For it, --steps would be the length of a search; here it is the length of the run.
SchedulerChoice read_step_scheduler(Values values) {
  values.erase("steps");
  return read_scheduler(values);
}

Checkpoints read_checkpoints(const Values& values) {
  Checkpoints checkpoints{read_text(values, "checkpoint"), read_integer(values, "every", 0, kMaxSteps),
                          values["resume"].as<bool>()};
  if ((checkpoints.resume || checkpoints.every > 0) && !checkpoints.folder) {
    refuse_option(checkpoints.resume ? "resume" : "every", "needs '--checkpoint DIR'");
  }
  return checkpoints;
}

/// Reads "FRACTION:LATENCY".
std::optional<Anomaly> read_slow_shapes(const Values& values) {
  const std::optional<std::string> text = read_text(values, "slow-shapes");
  if (!text) return std::nullopt;
  const std::string form = fmt::format(
      "FRACTION:LATENCY, a fraction of samples above 0 and at most 1 and a latency above 0 and at "
      "most {}",
      kMaxSlowLatency);
  ValueText reader("slow-shapes", form, *text);
  Anomaly anomaly;
  anomaly.fraction = reader.number(0.0, 1.0);
  reader.expect(":");
  anomaly.latency = reader.number(0.0, kMaxSlowLatency);
  reader.expect_end();
  if (anomaly.fraction == 0 || anomaly.latency == 0) reader.fail();
  return anomaly;
}

CorrectionChoice read_correction(const Values& values) {
  const auto rule = values["correction"].as<std::string>();
  CorrectionChoice choice{rule != "off", std::nullopt, read_slow_shapes(values)};
  if (rule == "published") {
    choice.rule = SwitchRule::published;
  } else if (rule == "keep") {
    choice.rule = SwitchRule::keep;
  } else if (rule != "off" && rule != "always") {
    refuse_value("correction", kCorrectionRules, rule);
  }
  if ((choice.slow_shapes || choice.correct) && values.count("profile") == 0) {
    refuse_option(choice.slow_shapes ? "slow-shapes" : "correction", "needs '--profile FILE'");
  }
  return choice;
}

/// Tells whether a path is a folder or lies in it, by their names.
bool lies_in(const std::string& path, const std::string& folder) {
  const auto full = [](const std::string& p) {
    return (std::filesystem::absolute(p) / "").lexically_normal();
  };
  const std::filesystem::path inner = full(path);
  const std::filesystem::path outer = full(folder);
  const auto [rest, end] = std::mismatch(inner.begin(), inner.end(), outer.begin(), outer.end());
  return end == outer.end() || std::next(end) == outer.end();  // which ends in an empty name
}

/// Reads the folder to write the model to; nothing if none was asked for.
std::optional<std::string> read_export(const Values& values) {
  std::optional<std::string> folder = read_text(values, "export");
  if (!folder) return folder;
  refuse_files_of_others(values, "export", *folder);
  const std::optional<std::string> checkpoints = read_text(values, "checkpoint");
  if (checkpoints && (lies_in(*checkpoints, *folder) || lies_in(*folder, *checkpoints) ||
                      lies_in(*checkpoints, *folder + ".part"))) {
    refuse_option(
        "export",
        fmt::format("one of '{}' and '{}' (of '--checkpoint') is inside the other; give separate folders",
                    *folder, *checkpoints));
  }
  return folder;
}

}  // namespace

TrainSettings read_train_settings(const Values& values, const LiveDevice& device) {
  TrainSettings settings;
  settings.given = given_options(values);
  settings.format = read_format(values);
  settings.record = read_output(values, "record");
  settings.scheduler = read_step_scheduler(values);
  settings.checkpoints = read_checkpoints(values);
  settings.dtype = read_dtype(values);
  settings.profile = read_text(values, "profile");
  settings.foreign_profile = read_foreign_profile(values);
  settings.extrapolate = read_extrapolate(values);
  settings.correction = read_correction(values);
  settings.exported = read_export(values);
  settings.log = read_output(values, "log");
  settings.tensorboard = read_text(values, "tensorboard");
  if (values.count("peak-tflops") > 0) settings.peak_tflops = read_number(values, "peak-tflops", 1e-6, 1e9);
  settings.random_weights = values["random-weights"].as<bool>();
  settings.data_threads = static_cast<int>(read_integer(values, "data-threads", 1, kMaxDataThreads));
  settings.optimizer = read_optimizer(values, read_integer(values, "steps", 1, kMaxSteps));
  settings.kernels = read_kernel_request(values, device);
  settings.made_by = made_here(values);
  if (!settings.checkpoints.resume) {  // a checkpoint has the settings of the run before
    check_optimizer(settings.optimizer);
    if (values.count("model") > 0) {
      const auto model = values["model"].as<std::string>();
      if (is_model_folder(model)) find_model(model);  // says first if the model is not supported at all
      require_rate(settings, model);
    }
  }
  return settings;
}

void read_settings_of_job(const Values& values, const TrainJob& job, TrainSettings& settings) {
  const ModelSpec& model = job.target->model;
  settings.plan = job.plan;
  settings.held_out = read_held_out(values, job);
  if (!job.shards && !(settings.held_out && settings.held_out->shards))
    refuse_given(values, {"data-threads"},
                 "applies only to tars and token ids, and no data set here has them");
  if (!settings.checkpoints.resume) require_rate(settings, model.name);
  for (const auto& [option, path] : {std::pair{"record", settings.record}, {"log", settings.log}}) {
    if (path) refuse_files_of_folder(model.name, option, *path);  // which the plan may name
  }
  for (const char* option : {"encoder-rate", "connector-rate"}) {
    if (model.encoder.layers == 0 && settings.given.contains(option))
      refuse_option(option, fmt::format("model '{}' has no encoder", model.name));
  }
  if (settings.exported && !is_model_folder(model.name)) {
    refuse_option(
        "export",
        "writes a copy of the folder of --model; expected the folder of a Transformers model there, found '" +
            model.name + "'");
  }
}

}  // namespace dflop
