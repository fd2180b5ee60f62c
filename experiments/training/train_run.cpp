#include "experiments/training/train_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "backend/content/folder_weights.hpp"
#include "backend/process/process_world.hpp"
#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/stop_signals.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/named_profile.hpp"
#include "experiments/training/export.hpp"
#include "experiments/training/live_setup.hpp"
#include "experiments/training/run_report.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/specs.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/staged_folder.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMaxRecorded = 32;  // steps

/// Returns, by name, the values that must be equal in all processes of a run.
std::vector<std::pair<std::string, std::string>> agreed_values(const TrainSettings& settings,
                                                               const TrainJob& job,
                                                               const RunIdentity& identity,
                                                               const TrainingOptions& options) {
  const auto given = [](bool is_given) { return is_given ? "given" : "not given"; };
  const Checkpoints& checkpoints = settings.checkpoints;
  return {
      {"version", DFLOP_VERSION},
      {"plan", fmt::format("{} ({:016x})", describe(job.plan), stable_hash(to_json(job.plan)))},
      {"model", identity.model_spec},
      {"data, by fingerprint", identity.data_fingerprint},
      {"batches", fmt::format("seed {}, {} samples, {} steps", identity.seed, identity.gbs, job.steps)},
      {"--dtype", std::string(to_string(settings.dtype))},
      {"profile", options.profile ? fmt::format("{:016x}", stable_hash(to_json(options.profile->profile())))
                                  : "none"},  // the order of a program depends on it
      {"--kernels", std::string(to_string(settings.kernels.mode))},
      {"--attention-sums", std::string(to_string(job.attention_sums))},
      {"--random-weights", given(settings.random_weights)},
      {"optimizer", describe(options.optimizer)},
      {"evaluation", describe(settings.held_out)},
      {"checkpoints", fmt::format("{} every {}{}", checkpoints.folder ? 1 : 0, checkpoints.every,
                                  checkpoints.resume ? ", resumed" : "")},
      {"--export", given(settings.exported.has_value())}};
}

/// Returns the samples of the steps, up to the batch that completes a pass over the data set.
Batch drawn_samples(const TrainJob& job) {
  const auto in_all = static_cast<std::int64_t>(job.samples->size());
  BatchStream batches = job.batches();
  Batch drawn;
  for (std::int64_t step = 0; step < job.steps && step * job.plan.gbs < in_all; ++step) {
    const Batch batch = batches.next();
    drawn.insert(drawn.end(), batch.begin(), batch.end());
  }
  return drawn;
}

/// Returns a profile adjusted to the kernels with which the run begins. Only the leading process has their
/// file.
std::shared_ptr<const ProfiledCostModel> with_kernels_of_run(World& world, const ProfiledCostModel& cost,
                                                             const std::string& path,
                                                             const KernelRequest& request) {
  NamedProfile profile{path, cost.profile()};
  std::string adjusted;
  if (world.leads()) {
    take_kernels_of_run(profile, request);
    adjusted = to_json(profile.tables);
  }
  return std::make_shared<const ProfiledCostModel>(parse_profile_tables(world.broadcast(adjusted), path));
}

/// Notes which tensors of a folder the model has no part for.
void say_unused(const FolderWeights& weights, const ModelSpec& model) {
  const std::vector<std::string> unused = weights.unused(model);
  if (unused.empty()) return;
  const bool is_one = unused.size() == 1;
  say("dflop: note: {} of {} not used, because the model has no part for {}: {}{}\n",
      is_one ? "a tensor" : fmt::format("{} tensors", unused.size()), model.name, is_one ? "it" : "them",
      unused.front(), is_one ? "" : ", ...");
}

/// Prints the part of a device on which each module of a shared plan computes. All ranks of a module have
/// parts of the same size.
void say_parts(const Plan& plan, const World& world) {
  if (plan.layout != Layout::shared) return;
  say("dflop: on each of {} devices the encoder has {}, the LLM {}\n", plan.gpus(), world.part_of(0),
      world.part_of(plan.gpus()));
}

}  // namespace

void require_rate(const TrainSettings& settings, const std::string& model) {
  if (!is_model_folder(model) || settings.random_weights || settings.given.contains("learning-rate")) return;
  refuse_option("learning-rate",
                fmt::format("the default {} is meant for random weights and would spoil the weights of {}; "
                            "give a rate, such as 1e-5",
                            settings.optimizer.rate.peak, model));
}

TrainRun::TrainRun(World& world, const TrainSettings& settings, const TrainJob& job)
    : world_(world),
      settings_(settings),
      job_(job),
      model_(job.target->model),
      identity_(run_identity(model_, job.data, job.data_fingerprint, job.seed, job.plan.gbs)) {
  options_.cores = world.cores();
  options_.seed = job.seed;
  options_.last_step = job.steps;
  options_.optimizer = settings.optimizer;
  if (settings.plan.clip_gradients && !settings.given.contains("clip-norm")) options_.optimizer.clip_norm = 1;
  if (settings.peak_tflops) options_.peak_flop_per_s = *settings.peak_tflops * 1e12 * job.plan.gpus();
}

int TrainRun::run() {
  claim_checkpoints();
  agree();
  adjust_profile();
  check_export();
  load();
  resume();
  train();
  finish();
  return is_stopped() ? 128 + signal_ : 0;
}

void TrainRun::claim_checkpoints() {
  const Checkpoints& checkpoints = settings_.checkpoints;
  if (!checkpoints.folder || !world_.leads()) return;
  own_folder_.emplace(
      prepare_checkpoints(*checkpoints.folder, checkpoints.resume, job_.steps, checkpoints.every));
}

void TrainRun::agree() {
  options_.profile = read_training_profile(settings_.profile, job_.plan,
                                           {model_, world_, settings_.dtype, settings_.foreign_profile});
  if (settings_.kernels.mode == KernelMode::learn && world_.leads()) check_output(settings_.kernels.file);
  require_agreement(world_, agreed_values(settings_, job_, identity_, options_));
  if (settings_.checkpoints.folder) require_seen_by_all(world_, *settings_.checkpoints.folder);
}

void TrainRun::adjust_profile() {
  if (!options_.profile) return;
  const std::string& path = *settings_.profile;
  options_.profile = with_kernels_of_run(world_, *options_.profile, path, settings_.kernels);
  if (world_.leads()) {
    options_.check_program = [cost = options_.profile, path,
                              extrapolate = settings_.extrapolate](const Program& program) {
      require_reach(*cost, cost->reach(program), path, extrapolate);
    };
  }
  options_.correct = settings_.correction.correct;
  options_.correction_rule = settings_.correction.rule;
  if (const std::optional<Anomaly>& slow = settings_.correction.slow_shapes) {
    options_.slower = std::make_shared<AnomalousCostModel>(*options_.profile, job_.plan, model_,
                                                           drawn_samples(job_), *slow, job_.seed);
  }
}

void TrainRun::check_export() {
  if (!settings_.exported) return;
  if (world_.leads()) StagedFolder made_and_removed(*settings_.exported);  // or it is rejected now
  if (settings_.checkpoints.folder) return;
  // Ranks write their parts to the folder around it first.
  const auto around = std::filesystem::path(*settings_.exported).lexically_normal().parent_path();
  require_seen_by_all(world_, around.empty() ? "." : around.string());
}

void TrainRun::load() {
  std::optional<FolderWeights> weights;
  if (is_model_folder(model_.name) && !settings_.random_weights) {
    weights.emplace(model_, model_.name);
    if (world_.leads()) say_unused(*weights, model_);
  }
  if (job_.shards)
    loader_ = std::make_shared<ContentLoader>(job_.shards, settings_.data_threads, settings_.dtype);
  if (!loader_ && is_model_folder(model_.name) && world_.leads()) {
    say("dflop: note: contents are generated from the seed; --data with tars or token ids has real "
        "contents\n");
  }
  executor_.emplace(job_.plan, model_, world_,
                    LiveOptions{settings_.dtype, job_.seed, loader_, weights ? &*weights : nullptr});
  kernels_ = make_run_kernels(settings_.kernels, world_, executor_->variant_names());
  if (kernels_) require_same_variants(world_, kernels_->names());
  options_.loader = loader_.get();
  options_.kernels = kernels_.get();
  say_parts(job_.plan, world_);
  if (job_.attention_sums != AttentionSums::fixed && world_.leads()) {
    say("dflop: note: attention sums are taken in {} order: runs are not bitwise reproducible\n",
        to_string(job_.attention_sums));
  }
}

CheckpointFolder TrainRun::checkpoint_folder() {
  return {*settings_.checkpoints.folder, identity_, world_, *executor_, kernels_.get()};
}

void TrainRun::resume() {
  if (!settings_.checkpoints.resume) return;
  const ResumedRun resumed = resume_training(
      checkpoint_folder(), {settings_.given, settings_.dtype, job_.attention_sums}, options_.optimizer);
  options_.first_step = resumed.step + 1;
  if (!resumed.has_optimizer) require_rate(settings_, model_.name);
}

void TrainRun::train() {
  if (settings_.held_out) {
    held_out_.emplace(*settings_.held_out, job_, settings_.scheduler, world_, settings_.data_threads,
                      settings_.dtype);
    options_.held_out = &*held_out_;
  }
  TrainingLoop training(job_.plan, job_.target, job_.batches(), settings_.scheduler, world_, *executor_,
                        options_);
  if (world_.leads()) logs_ = StepLogs(settings_.log, settings_.tensorboard);
  load_.emplace();
  try {
    train_steps(training);
  } catch (const Error&) {
    try {
      write_record();  // of the steps before
    } catch (const std::exception& problem) {
      say("dflop: {}\n", problem.what());
    }
    throw;
  }
}

/// Trains, and writes checkpoints on the way: also of the step before a failure that leaves the state whole.
/// All processes end on the signal that came to the leading one.
void TrainRun::train_steps(TrainingLoop& training) {
  const StopOnSignals signals;
  TrainingLine line(job_.steps);
  const Checkpoints& checkpoints = settings_.checkpoints;
  try {
    training.run([&](const TrainingStep& step, Timeline&& timeline) {
      signal_ = std::stoi(world_.broadcast(std::to_string(signals.signal())));
      steps_.push_back(step);
      steps_.back().kernels = {};
      if (settings_.record && world_.leads()) record_step(std::move(timeline));
      logs_.add(step);
      if (world_.leads()) line.update(step);
      const bool ends = signal_ != 0 || step.step == job_.steps;
      const bool is_due = checkpoints.every > 0 && step.step % checkpoints.every == 0;
      if (checkpoints.folder && (ends || is_due)) save(step.step);
      return signal_ == 0;
    });
  } catch (const Error&) {
    const std::int64_t last = steps_.empty() ? 0 : steps_.back().step;
    if (!checkpoints.folder || !training.failed_between_steps() || last == saved_) throw;
    save(last);
    if (world_.leads()) say("dflop: the state after step {} is in {}\n", last, *checkpoints.folder);
    throw;
  }
}

void TrainRun::finish() {
  if (held_out_ && steps_.empty() && signal_ == 0) {  // the run had ended before
    const HeldOutLoss loss = held_out_->run(*executor_, nullptr);
    if (world_.leads()) say("dflop: eval loss {:.4f} after step {}\n", loss.loss, last_step());
  }
  write_record();
  if (world_.leads() && kernels_ && kernels_->mode() == KernelMode::learn) {
    kernels_->save(settings_.made_by);
    say_learned(*kernels_);
  }
  if (settings_.exported) {
    const std::optional<std::string>& folder = settings_.checkpoints.folder;
    export_weights(*settings_.exported, model_, folder ? step_folder(*folder, last_step()) : "", world_,
                   *executor_);
  }
  if (!world_.leads()) return;
  print_table(step_table(steps_, options_), settings_.format);  // last, as standard output may be gone
  say_summary(steps_, options_.first_step, others());
  if (steps_.empty()) {
    say("dflop: nothing to do: step {} is done\n", last_step());
  } else if (is_stopped()) {
    say("dflop: stopped by signal {} after step {}\n", signal_, last_step());
  }
}

void TrainRun::save(std::int64_t step) {
  save_checkpoint(
      checkpoint_folder(), step,
      {describe(job_.plan), settings_.scheduler.name, settings_of(options_.optimizer), job_.attention_sums});
  saved_ = step;
}

void TrainRun::record_step(Timeline&& timeline) {
  recorded_.push_back(std::move(timeline));
  if (recorded_.size() > kMaxRecorded) recorded_.pop_front();
}

/// Writes the timelines of the newest steps.
void TrainRun::write_record() const {
  if (!world_.leads() || !settings_.record || recorded_.empty()) return;
  write_file_atomically(*settings_.record,
                        to_json(TimelineFile{{recorded_.begin(), recorded_.end()}, made_by()}));
}

/// Returns the share of the machine's time that other processes took since the first step; nothing if ranks
/// run in several processes, whose times it would count.
std::optional<double> TrainRun::others() const {
  if (std::ssize(world_.local_ranks()) < world_.ranks()) return std::nullopt;
  return load_->others();
}

Provenance TrainRun::made_by() const {
  Provenance made_by = with_target(settings_.made_by, *job_.target);
  made_by.plan = origin_of(settings_.plan, job_.where);
  made_by.data = job_.data_origin;
  made_by.gbs = job_.plan.gbs;
  made_by.machine->others = others();
  made_by.first_iteration = last_step() - std::ssize(recorded_);
  return made_by;
}

std::int64_t TrainRun::last_step() const {
  return steps_.empty() ? options_.first_step - 1 : steps_.back().step;
}

/// Tells whether a signal ended the run before its last step.
bool TrainRun::is_stopped() const {
  return signal_ != 0 && !steps_.empty() && last_step() < job_.steps;
}

}  // namespace dflop
