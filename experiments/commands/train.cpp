// dflop train trains a model under a plan on a live device.
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <memory>
#include <numeric>

#include "backend/content/folder_weights.hpp"
#include "backend/process/process_world.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/recipe.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/stop_signals.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/studies/study.hpp"
#include "experiments/training/checkpoint.hpp"
#include "experiments/training/export.hpp"
#include "experiments/training/held_out.hpp"
#include "experiments/training/job.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/live_setup.hpp"
#include "experiments/training/loop.hpp"
#include "experiments/training/optimizer.hpp"
#include "experiments/training/step_log.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/files/specs.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/staged_folder.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMostRecorded = 32;  // steps
constexpr std::int64_t kMostDataThreads = 256;

/// A TrainingLine is one line a second at most on standard error, which a terminal overwrites.
class TrainingLine {
 public:
  explicit TrainingLine(std::int64_t last_step) : last_step_(last_step) {}
  ~TrainingLine() {
    if (drawn_ && terminal_) say("\n");
  }
  TrainingLine(const TrainingLine&) = delete;

  void update(const TrainingStep& step) {
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && step.step < last_step_ && !step.eval_loss && now - last_ < std::chrono::seconds(1)) return;
    last_ = now;
    drawn_ = true;
    say("{}step {}/{}  loss {:.4f}  {:.0f} tokens/s  {:.3f} s{}  idle {:.1f} %{}{}", terminal_ ? "\r" : "",
        step.step, last_step_, step.loss, step.tokens_per_s(), step.time.count(),
        step.step_to_step ? fmt::format(", {:.3f} s from step to step", step.step_to_step->count()) : "",
        100 * step.idle_fraction, step.eval_loss ? fmt::format("  eval loss {:.4f}", *step.eval_loss) : "",
        terminal_ ? "\x1b[K" : "\n");
  }

 private:
  std::int64_t last_step_;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// Here --steps counts the steps of the training, not of a scheduler's search.
SchedulerChoice read_step_scheduler(Values values) {
  values.erase("steps");
  return read_scheduler(values);
}

Table step_table(const std::vector<TrainingStep>& steps, const TrainingOptions& options) {
  Table table;
  table.columns = {{"step", "step"},
                   {"loss", "loss", 4},
                   {"iteration_s", "s", 4},
                   {"step_to_step_s", "step to step s", 4},
                   {"llm_tokens_per_s", "tokens/s", 0},
                   {"idle_fraction", "idle %", 1, 100},
                   {"peak_memory_bytes", "peak MiB", 1, 0x1p-20},
                   {"schedule_wait_s", "waited ms", 2, 1e3}};
  if (options.profile) {
    table.columns.push_back({"predicted_s", "predicted s", 4});
    table.columns.push_back({"extrapolated_fraction", "beyond profile %", 1, 100});
  }
  if (options.correct) table.columns.push_back({"tracked", "tracked"});
  if (options.held_out != nullptr) table.columns.push_back({"eval_loss", "eval loss", 4});
  for (const TrainingStep& s : steps) {
    std::vector<Cell>& row = table.rows.emplace_back(std::vector<Cell>{
        s.step, s.loss, s.time, s.step_to_step, s.tokens_per_s(), s.idle_fraction, s.peak_memory, s.waited});
    if (options.profile) row.insert(row.end(), {s.predicted, s.extrapolated_fraction});
    if (options.correct) row.push_back(s.tracked);
    if (options.held_out != nullptr) row.push_back(s.eval_loss);
  }
  return table;
}

/// A StepLog is what steps leave behind.
struct StepLog {
  std::vector<TrainingStep> steps;    ///< without their kernels, which would fill the memory in a long run
  std::deque<Timeline> recorded;      ///< the newest
  std::deque<KernelChoices> kernels;  ///< of these, where they were chosen
};

/// Writes the timelines of the newest steps.
void write_record(const std::string& path, Provenance made_by, const std::optional<double>& others,
                  const StepLog& log, const RunKernels* kernels) {
  made_by.machine->others = others;
  made_by.first_iteration = log.steps.empty() ? 0 : log.steps.back().step - std::ssize(log.recorded);
  TimelineFile file{{log.recorded.begin(), log.recorded.end()}, made_by, {}};
  if (kernels != nullptr) file.kernels = recorded_kernels(*kernels, {log.kernels.begin(), log.kernels.end()});
  write_file_atomically(path, to_json(file));
}

/// Trains, and writes checkpoints as it goes: also after the last step before a failure that leaves the state
/// whole. Returns the signal that ended it, or 0: that which has come to the leading process.
int run_steps(const TrainJob& job, const Checkpoints& checkpoints, const std::string& scheduler, bool record,
              const RunIdentity& identity, const OptimizerSettings& settings, World& world,
              LiveExecutor& executor, const RunKernels* kernels, TrainingLoop& training, StepLogs& logs,
              StepLog& log) {
  int signal = 0;
  const StopOnSignals signals;
  TrainingLine line(job.steps);
  std::int64_t saved = 0;
  const auto save = [&](std::int64_t step) {
    save_checkpoint(*checkpoints.folder, identity, job.plan, scheduler, step, world, executor, settings,
                    kernels, job.attention_sums);
    saved = step;
  };
  try {
    training.run([&](const TrainingStep& step, Timeline&& timeline) {
      signal = std::stoi(world.broadcast(std::to_string(signals.signal())));
      log.steps.push_back(step);
      log.steps.back().kernels = {};
      if (record && world.leads()) {
        log.recorded.push_back(std::move(timeline));
        if (log.recorded.size() > kMostRecorded) log.recorded.pop_front();
        if (kernels != nullptr) log.kernels.push_back(step.kernels);
        if (log.kernels.size() > kMostRecorded) log.kernels.pop_front();
      }
      logs.add(step);
      if (world.leads()) line.update(step);
      const bool ends = signal != 0 || step.step == job.steps;
      const bool is_due = checkpoints.every > 0 && step.step % checkpoints.every == 0;
      if (checkpoints.folder && (ends || is_due)) save(step.step);
      return signal == 0;
    });
  } catch (const Error&) {
    const std::int64_t last = log.steps.empty() ? 0 : log.steps.back().step;
    if (!checkpoints.folder || !training.failed_between_steps() || last == saved) throw;
    save(last);
    if (world.leads()) say("dflop: the state after step {} is in {}\n", last, *checkpoints.folder);
    throw;
  }
  return signal;
}

/// Says what the steps came to, without the first of a run, which warms up.
void say_summary(const std::vector<TrainingStep>& steps, std::int64_t first_step,
                 const std::optional<double>& others) {
  const std::size_t warm_up = steps.size() > 1 ? 1 : 0;
  if (steps.empty()) return;
  std::vector<double> times;
  double tokens = 0;
  double to_next = 0;  // from step to step
  for (std::size_t i = warm_up; i < steps.size(); ++i) {
    times.push_back(steps[i].time.count());
    to_next += steps[i].step_to_step.value_or(Seconds(0)).count();
    tokens += static_cast<double>(steps[i].llm_tokens);
  }
  const auto count = static_cast<double>(times.size());
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  const double mean = sum / count;
  double squares = 0;
  for (const double time : times) squares += (time - mean) * (time - mean);
  std::sort(times.begin(), times.end());
  const double p95 = nearest_rank(times, 0.95);
  const double spread = times.size() > 1 ? std::sqrt(squares / (count - 1)) / mean : 0;
  say("dflop: steps {} to {}: {:.4f} s in the mean, {:.4f} s at the 95th percentile, spread {:.1f} %, {:.0f} tokens/s{}{}\n",
      first_step + static_cast<std::int64_t>(warm_up), steps.back().step, mean, p95, 100 * spread,
      tokens / sum,
      warm_up > 0
          ? fmt::format("; {:.4f} s from step to step, {:.0f} tokens/s", to_next / count, tokens / to_next)
          : "",
      others ? fmt::format("; others took {:.1f} % of the machine's time", 100 * *others) : "");
}

/// A TrainRequest is what is asked for beside the job; all of it is read before anything is made.
struct TrainRequest {
  Format format;
  std::optional<std::string> record;
  SchedulerChoice scheduler;
  Checkpoints checkpoints;
  DType dtype;
  bool foreign_profile;
  std::optional<std::string> exported;  ///< the folder to write the model to
  std::optional<std::string> log;
  std::optional<std::string> tensorboard;  ///< a folder
  std::optional<double> peak_tflops;       ///< of one device
  bool random_weights;                     ///< whatever the model's folder has
  int data_threads;
  OptimizerChoice optimizer;
  Plan plan = {};                            ///< of the job, as the user has it
  std::optional<HeldOutData> held_out = {};  ///< read with the job, whose model it is for
};

std::optional<double> read_peak(const Values& values) {
  if (values.count("peak-tflops") == 0) return std::nullopt;
  return read_number(values, "peak-tflops", 1e-6, 1e9);
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

/// Reads the folder to write the model to; nothing where none was asked for.
std::optional<std::string> read_export(const Values& values) {
  std::optional<std::string> folder = read_text(values, "export");
  if (!folder) return folder;
  refuse_files_of_others(values, "export", *folder);
  const std::optional<std::string> checkpoints = read_text(values, "checkpoint");
  if (checkpoints && (lies_in(*checkpoints, *folder) || lies_in(*folder, *checkpoints) ||
                      lies_in(*checkpoints, *folder + ".part"))) {
    refuse_option("export",
                  fmt::format("'{}' and '{}' of '--checkpoint' lie in each other; expected folders apart",
                              *folder, *checkpoints));
  }
  return folder;
}

TrainRequest read_request(const Values& values) {
  return {read_format(values),
          read_output(values, "record"),
          read_step_scheduler(values),
          read_checkpoints(values),
          read_dtype(values),
          read_foreign_profile(values),
          read_export(values),
          read_output(values, "log"),
          read_text(values, "tensorboard"),
          read_peak(values),
          values["random-weights"].as<bool>(),
          static_cast<int>(read_integer(values, "data-threads", 1, kMostDataThreads)),
          read_optimizer(values, read_integer(values, "steps", 1, kMostSteps))};
}

/// `plan` is that of the user, of which the job's may be a change.
Provenance made_by_job(const Values& values, const TrainJob& job, const Plan& plan) {
  Provenance made_by = made_here(values, *job.target);
  made_by.plan = origin_of(plan, job.where);
  made_by.data = job.data_origin;
  made_by.gbs = job.plan.gbs;
  return made_by;
}

/// Returns what loads the samples of tars; null where contents are made up.
std::shared_ptr<ContentLoader> make_loader(const TrainJob& job, const TrainRequest& request) {
  if (!job.shards) return nullptr;
  return std::make_shared<ContentLoader>(job.shards, request.data_threads, request.dtype);
}

/// Tells the user which tensors of a folder the model has no part for.
void say_unused(const FolderWeights& weights, const ModelSpec& model) {
  const std::vector<std::string> unused = weights.unused(model);
  if (unused.empty()) return;
  say("dflop: note: {} of {} not used, because the model has no part for {}: {}{}\n",
      unused.size() == 1 ? "a tensor" : fmt::format("{} tensors", unused.size()), model.name,
      unused.size() == 1 ? "it" : "them", unused.front(), unused.size() == 1 ? "" : ", ...");
}

/// Says on what the ranks of a shared plan compute: those of a module all on parts of one size.
void say_parts(const Plan& plan, const World& world) {
  if (plan.layout != Layout::shared) return;
  say("dflop: on each of {} devices the encoder has {}, the LLM {}\n", plan.gpus(), world.part_of(0),
      world.part_of(plan.gpus()));
}

/// Returns a profile as it is with the kernels with which the run begins, whose file the leading process has.
std::shared_ptr<const ProfiledCostModel> with_kernels_of_run(World& world, const ProfiledCostModel& cost,
                                                             const Values& values,
                                                             const KernelRequest& request) {
  NamedProfile profile{values["profile"].as<std::string>(), cost.profile()};
  std::string adjusted;
  if (world.leads()) {
    take_kernels_of_run(profile, request);
    adjusted = to_json(profile.tables);
  }
  return std::make_shared<const ProfiledCostModel>(
      parse_profile_tables(world.broadcast(adjusted), profile.path));
}

/// Refuses the usual learning rate for the weights of a folder.
void require_rate(const Values& values, const std::string& model) {
  if (!is_model_folder(model) || values["random-weights"].as<bool>() || !values["learning-rate"].defaulted())
    return;
  refuse_option("learning-rate",
                fmt::format("its usual {} is for random weights and would spoil those of {}; "
                            "expected one, as 1e-5",
                            values["learning-rate"].as<double>(), model));
}

/// Trains on a world that has been made; all of its processes do so. The executor is the caller's, as it has
/// to end after other processes have been told of a failure.
int train_on(World& world, const Values& values, const TrainRequest& request, const TrainJob& job,
             const KernelRequest& kernel_request, std::optional<LiveExecutor>& executor) {
  const Checkpoints& checkpoints = request.checkpoints;
  std::optional<FolderLock> own_folder;
  if (checkpoints.folder && world.leads()) {
    own_folder.emplace(
        prepare_checkpoints(*checkpoints.folder, checkpoints.resume, job.steps, checkpoints.every));
  }
  const ModelSpec& model = job.target->model;
  const RunIdentity identity = run_identity(model, job.data, job.data_fingerprint, job.seed, job.plan.gbs);
  TrainingOptions options;
  options.cores = world.cores();
  options.profile = read_training_profile(read_text(values, "profile"), model, job.plan, world, request.dtype,
                                          request.foreign_profile);
  options.optimizer = request.optimizer;
  for (const char* option : {"encoder-rate", "connector-rate"}) {
    if (model.encoder.layers == 0 && !values[option].defaulted())
      refuse_option(option, fmt::format("model '{}' has no encoder", model.name));
  }
  if (request.plan.clip_gradients && values.count("clip-norm") == 0) options.optimizer.clip_norm = 1;
  if (kernel_request.mode == KernelMode::learn && world.leads()) check_output(kernel_request.file);
  require_agreement(world, train_agreement(values, options, job.plan, identity, describe(request.held_out)));
  if (checkpoints.folder) require_seen_by_all(world, *checkpoints.folder);
  if (options.profile) {
    options.profile = with_kernels_of_run(world, *options.profile, values, kernel_request);
    options.check_program = [cost = options.profile, path = values["profile"].as<std::string>(),
                             extrapolate = read_extrapolate(values),
                             leads = world.leads()](const Program& program) {
      if (leads) require_reach(*cost, cost->reach(program), path, extrapolate);
    };
  }
  read_correction(values, job, options);
  if (request.exported && !is_model_folder(model.name)) {
    refuse_option("export",
                  "writes a folder as that of --model is; expected a folder of transformers there, found '" +
                      model.name + "'");
  }
  if (request.exported && world.leads())
    StagedFolder made_and_removed(*request.exported);  // or it is refused now
  if (request.exported && !checkpoints.folder) {       // ranks write their parts there first
    const auto around = std::filesystem::path(*request.exported).lexically_normal().parent_path();
    require_seen_by_all(world, around.empty() ? "." : around.string());
  }
  std::optional<FolderWeights> weights;
  if (is_model_folder(model.name) && !request.random_weights) {
    weights.emplace(model, model.name);
    if (world.leads()) say_unused(*weights, model);
  }
  const std::shared_ptr<ContentLoader> loader = make_loader(job, request);
  options.loader = loader.get();
  if (!loader && is_model_folder(model.name) && world.leads()) {
    say("dflop: note: contents are generated from the seed; --data with tars or token ids has real "
        "contents\n");
  }
  executor.emplace(job.plan, model, world,
                   LiveOptions{request.dtype, job.seed, loader, weights ? &*weights : nullptr});
  weights.reset();
  const std::unique_ptr<RunKernels> kernels =
      make_run_kernels(kernel_request, world, executor->variant_names(), job.plan, model);
  if (kernels) require_same_variants(world, kernels->names());
  say_parts(job.plan, world);
  if (job.attention_sums != AttentionSums::fixed && world.leads()) {
    say("dflop: note: attention sums are taken in {} order: runs are not bitwise reproducible\n",
        to_string(job.attention_sums));
  }
  options.kernels = kernels.get();
  if (checkpoints.resume) {
    const ResumedRun resumed = resume_training(*checkpoints.folder, identity, values, options.optimizer,
                                               world, *executor, kernels.get());
    options.first_step = resumed.step + 1;
    if (!resumed.has_optimizer) require_rate(values, model.name);
  }
  options.last_step = job.steps;
  options.seed = job.seed;
  std::optional<HeldOutEvaluation> held_out;
  if (request.held_out) {
    held_out.emplace(*request.held_out, job, request.scheduler, world, request.data_threads, request.dtype);
    options.held_out = &*held_out;
  }
  if (request.peak_tflops) options.peak_flop_per_s = *request.peak_tflops * 1e12 * job.plan.gpus();
  TrainingLoop training(job.plan, job.target, job.batches(), request.scheduler, world, *executor, options);

  StepLog log;
  StepLogs logs = world.leads() ? StepLogs(request.log, request.tensorboard) : StepLogs();
  const HostLoad load;
  // Processes of other ranks are no others.
  const auto others = [&] {
    return std::ssize(world.local_ranks()) < world.ranks() ? std::nullopt : load.others();
  };
  const auto record = [&] {
    if (world.leads() && request.record && !log.recorded.empty())
      write_record(*request.record, made_by_job(values, job, request.plan), others(), log, kernels.get());
  };
  int signal = 0;
  try {
    signal = run_steps(job, checkpoints, request.scheduler.name, request.record.has_value(), identity,
                       settings_of(options.optimizer), world, *executor, kernels.get(), training, logs, log);
  } catch (const Error&) {
    try {
      record();  // what the steps before came to
    } catch (const std::exception& problem) {
      say("dflop: {}\n", problem.what());
    }
    throw;
  }
  if (held_out && log.steps.empty() && signal == 0) {  // the run had ended before
    const HeldOutLoss loss = held_out->run(*executor, nullptr);
    if (world.leads()) say("dflop: eval loss {:.4f} after step {}\n", loss.loss, options.first_step - 1);
  }
  const bool stopped = signal != 0 && !log.steps.empty() && log.steps.back().step < job.steps;
  const int status = stopped ? 128 + signal : 0;
  record();
  if (world.leads() && kernels && kernels->mode() == KernelMode::learn) {
    kernels->save(made_here(values));
    say_learned(*kernels);
  }
  if (request.exported) {
    const std::int64_t step = log.steps.empty() ? options.first_step - 1 : log.steps.back().step;
    const std::string newest = checkpoints.folder ? step_folder(*checkpoints.folder, step) : "";
    export_weights(*request.exported, model, newest, world, *executor);
  }
  if (!world.leads()) return status;
  print_table(step_table(log.steps, options), request.format);  // last, as standard output may be gone
  say_summary(log.steps, options.first_step, others());
  if (log.steps.empty()) {
    say("dflop: nothing to do: step {} is done\n", options.first_step - 1);
  } else if (stopped) {
    say("dflop: stopped by signal {} after step {}\n", signal, log.steps.back().step);
  }
  return status;
}

int run_train(const Values& values) {
  if (values["print-recipe"].as<bool>()) {
    fmt::print("{}", to_recipe(values));
    return 0;
  }
  TrainRequest request = read_request(values);
  if (!request.checkpoints.resume) check_optimizer(request.optimizer);
  if (values.count("model") > 0 && !request.checkpoints.resume)
    require_rate(values, values["model"].as<std::string>());
  LiveDevice device = read_live_device(values);
  device.cores = read_cores(values, device);
  device.device_cores = read_device_cores(values, device);
  const KernelRequest kernels = read_kernel_request(values, device, KernelUse::trained);
  TrainJob job = read_train_job(values);
  job.attention_sums = device.attention.sums;
  request.held_out = read_held_out(values, job);
  if (!job.shards && !(request.held_out && request.held_out->shards))
    refuse_given(values, {"data-threads"}, "is about tars and token ids, and no data set here is of them");
  if (!request.checkpoints.resume) require_rate(values, job.target->model.name);
  for (const auto& [option, path] : {std::pair{"record", request.record}, {"log", request.log}}) {
    if (path) refuse_files_of_folder(job.target->model.name, option, *path);  // which the plan may name
  }
  request.plan = job.plan;
  job.plan.clip_gradients =
      true;  // a norm that is not finite ends a run before weights change; see --clip-norm
  const std::unique_ptr<World> world = make_live_world(device, job.plan);
  std::optional<LiveExecutor> executor;
  try {
    return train_on(*world, values, request, job, kernels, executor);
  } catch (const std::exception& error) {
    world->abort(error.what());
    throw;
  }
}

}  // namespace

Command train_command() {
  Command command{
      .name = "train",
      .summary = "train a model under a plan on a live device",
      .description =
          R"(Runs the plan's programs on the shapes of the data set, with pixels and tokens generated from the
seed: answers follow from the image's class and the previous token, so the loss falls. Without a plan, one
rank has the encoder and one the LLM. If options give parallelism, microbatches, a layout or an order, planner
search chooses the rest on one node of eight GPUs. SIGINT, SIGTERM and SIGHUP end the run after the current
step. At the end, standard error shows the mean, 95th percentile and spread of the step times (without the
first step of a run), tokens per second, the time from step to step, and the share of the machine's time that
other processes took.)",
      .example = "dflop train --model tiny-vlm --device host --steps 10 --log run.jsonl",
      .run = run_train,
  };
  add_recipe_options(command.options);
  command.options.add({
      {"plan", text("FILE"), "plan file, from 'dflop plan'"},
      {"model", text("NAME|FILE|DIR"),
       "preset (see 'dflop models'), model file, or folder of a Transformers model with its weights; "
       "default without a plan: tiny-vlm",
       "hf"},
  });
  add_live_options(command.options, true);
  add_cores_option(command.options);
  command.options.add({
      {"steps", whole("N").required(), "number of training steps (iterations)"},
      {"gbs", whole("N"), "global batch size, in samples; default: the plan's, or 16"},
      {"seed", whole("S", 1), "seed of parameters, batches and contents"},
      {"random-weights", flag(), "start from random weights, even if the model's folder has weights"},
      {"data-threads", whole("N", 1),
       "threads of each process that read and decode the next step's samples of shards"},
      {"log", text("FILE"), "append a line of JSON to this file after each step"},
      {"tensorboard", text("DIR"),
       "write the same figures as TensorBoard curves, to a new file in this folder"},
      {"peak-tflops", number("T"),
       "peak TFLOP/s of one device in --dtype, for MFU: FLOP of the model without padding and "
       "recomputation, divided by time, devices and peak; default: MFU is null"},
      {"record", text("FILE"), "write the timelines of the last 32 steps, for 'dflop replay'"},
      {"profile", text("FILE"),
       "profile, from 'dflop profile': print the predicted time next to each step's time, and the share "
       "of passes larger than any measured point"},
      {"foreign-profile", flag(), "accept a profile that was measured on another machine"},
      {"correction", text("RULE", "off"),
       "with --profile: learn from the steps which shapes take longer than predicted, and schedule "
       "accordingly: off, always, published (only while it pays, by the published rule) or keep (as "
       "published, but the learned correction stays in use while learning is off); 'dflop correction' "
       "studies both rules"},
      {"slow-shapes", text("FRACTION:LATENCY"),
       "with --profile, for experiments: slow down this fraction of the samples, in whole shapes, by "
       "LATENCY durations of the largest stage each"},
      {"checkpoint", text("DIR"),
       "write the state of the run to this folder at the end; the two newest checkpoints are kept"},
      {"every", whole("K", 0), "also write a checkpoint after every K steps; 0: only at the end"},
      {"export", text("DIR"),
       "with a Transformers folder as --model: write a copy with the final weights, which Transformers "
       "can load; the folder appears when it is complete"},
      {"resume", flag(),
       "continue from the newest readable checkpoint, under any plan of the same model, seed, gbs and data"},
  });
  add_held_out_options(command.options);
  add_optimizer_options(command.options);
  add_kernel_options(command.options, KernelUse::trained);
  add_extrapolate_option(command.options);
  add_delay_options(
      command.options,
      "default: the plan's, or, if a run continues under another plan, the first run's. The planner search "
      "uses batches without delay");
  add_wanted_plan_options(command.options);
  add_data_options(command.options, "traces/datasets/vision_mix.csv");
  command.options.add({
      {"scheduler", text(joined(scheduler_names()), "lpt"),
       "microbatch scheduler; it schedules a step while the previous step runs"},
  });
  add_objective_option(command.options);
  add_bin_order_option(command.options);
  add_memory_options(command.options);
  command.options.add({
      {"token-cap", whole("N"), "max LLM tokens of a microbatch on one dp rank"},
      {"time-limit", number("SECONDS"),
       "wall-clock limit of the scheduler per step, in seconds; a step takes the best schedule found by "
       "its start. Without it the same seed gives the same schedules"},
  });
  return command;
}

}  // namespace dflop
