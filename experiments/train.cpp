// dflop train: trains a model under a plan on a live device.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <deque>
#include <memory>

#include "core/error.hpp"
#include "core/lowering.hpp"
#include "costmodel/schedule_tables.hpp"
#include "experiments/command.hpp"
#include "experiments/correction_study.hpp"
#include "experiments/live_setup.hpp"
#include "experiments/options.hpp"
#include "experiments/stop_signals.hpp"
#include "experiments/training.hpp"
#include "experiments/training_checkpoint.hpp"
#include "experiments/training_profile.hpp"
#include "solver/schedulers.hpp"
#include "traces/output_file.hpp"
#include "traces/plan_file.hpp"
#include "traces/text_file.hpp"
#include "traces/timeline_file.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

constexpr std::int64_t kMostSteps = 1'000'000;
constexpr std::size_t kMostRecorded = 32;  // steps
constexpr double kMostLatency = 100;
constexpr const char* kCorrectionRules = "off, always, published or keep";
constexpr const char* kDefaultModel = "tiny-vlm";
constexpr const char* kDefaultCluster = "a100-80g:1";

/// One line a second at most on standard error, which a terminal overwrites.
class TrainingLine {
 public:
  explicit TrainingLine(std::int64_t last_step) : last_step_(last_step) {}
  ~TrainingLine() {
    if (drawn_ && terminal_) fmt::print(stderr, "\n");
  }
  TrainingLine(const TrainingLine&) = delete;

  void update(const TrainingStep& step) {
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && step.step < last_step_ && now - last_ < std::chrono::seconds(1)) return;
    last_ = now;
    drawn_ = true;
    fmt::print(stderr, "{}step {}/{}  loss {:.4f}  {:.0f} tokens/s  {:.3f} s  idle {:.1f} %{}",
               terminal_ ? "\r" : "", step.step, last_step_, step.loss, step.tokens_per_s(),
               step.time.count(), 100 * step.idle_fraction, terminal_ ? "\x1b[K" : "\n");
  }

 private:
  std::int64_t last_step_;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// One encoder and one LLM rank.
Plan default_plan(const std::string& model_name, const std::string& cluster, const ModelSpec& model,
                  int gbs) {
  Plan plan;
  plan.planner = "train";
  plan.model = model_name;
  plan.cluster = cluster;
  plan.gbs = gbs;
  plan.encoder = {1, 1, 1, {model.encoder.layers}};
  plan.llm = {1, 1, 1, {model.llm.layers}};
  plan.microbatches = std::min(4, gbs);
  plan.recomputation = Recomputation::none;
  return plan;
}

Plan read_plan(const Values& values) {
  const auto path = values["plan"].as<std::string>();
  Plan plan = parse_plan(read_text_file(path), path);
  if (values.count("model") > 0 && values["model"].as<std::string>() != plan.model) {
    throw Error(ErrorKind::usage, fmt::format("option '--model': {} is a plan for '{}', found '{}'", path,
                                              plan.model, values["model"].as<std::string>()));
  }
  if (values.count("gbs") > 0)
    plan.gbs = static_cast<int>(read_integer(values, "gbs", plan.bins(), kMostGbs));
  return plan;
}

/// --steps counts those of the training here, not of a scheduler's search.
SchedulerChoice read_step_scheduler(Values values) {
  values.erase("steps");
  return read_scheduler(values);
}

Table step_table(const std::vector<TrainingStep>& steps, const TrainingOptions& options) {
  Table table;
  table.columns = {{"step", "step"},
                   {"loss", "loss", 4},
                   {"iteration_s", "s", 4},
                   {"llm_tokens_per_s", "tokens/s", 0},
                   {"idle_fraction", "idle %", 1, 100},
                   {"peak_memory_bytes", "peak MiB", 1, 0x1p-20},
                   {"schedule_wait_s", "waited ms", 2, 1e3}};
  if (options.profile) {
    table.columns.push_back({"predicted_s", "predicted s", 4});
    table.columns.push_back({"extrapolated_fraction", "beyond profile %", 1, 100});
  }
  if (options.correct) table.columns.push_back({"tracked", "tracked"});
  for (const TrainingStep& s : steps) {
    table.rows.push_back({s.step, s.loss, s.time.count(), s.tokens_per_s(), s.idle_fraction,
                          s.peak_memory.count, s.waited.count()});
    if (options.profile) {
      table.rows.back().push_back(s.predicted->count());
      table.rows.back().push_back(s.extrapolated_fraction);
    }
    if (options.correct) table.rows.back().push_back(s.tracked ? "yes" : "no");
  }
  return table;
}

/// What is trained on which batches.
struct Job {
  Plan plan;
  std::string where;  ///< the plan's file; "plan" without one
  std::shared_ptr<const Target> target;
  std::string data;
  std::shared_ptr<const std::vector<Batch>> batches;
  std::int64_t steps = 0;
  std::uint64_t seed = 0;
};

/// The plan and its target.
Job read_job(const Values& values) {
  Job job;
  job.seed = read_seed(values);
  job.steps = read_integer(values, "steps", 1, kMostSteps);
  if (values.count("plan") > 0) {
    job.where = values["plan"].as<std::string>();
    job.plan = read_plan(values);
    job.target = std::make_shared<const Target>(job.plan.model, job.plan.cluster, job.where);
  } else {
    job.where = "plan";
    const auto model = read_text(values, "model").value_or(kDefaultModel);
    job.target = std::make_shared<const Target>(model, kDefaultCluster);
    const auto gbs = values.count("gbs") > 0 ? read_integer(values, "gbs", 1, kMostGbs) : 16;
    job.plan = default_plan(model, kDefaultCluster, job.target->model, static_cast<int>(gbs));
  }
  validate(job.plan, job.target->model, job.target->cluster, job.where);
  require_live_plan(job.plan, job.where);
  return job;
}

void read_batches(const Values& values, Job& job) {
  if (job.steps * job.plan.gbs > kMostSamplesInAll) {
    throw Error(ErrorKind::usage, fmt::format("option '--steps': {} steps of {} samples are more than {}",
                                              job.steps, job.plan.gbs, kMostSamplesInAll));
  }
  job.data = values["data"].as<std::string>();
  const std::vector<Sample> samples =
      load_samples(job.data, read_preprocess_options(values, job.target->model, job.seed));
  job.batches = std::make_shared<const std::vector<Batch>>(
      make_batches(samples, job.plan.gbs, static_cast<int>(job.steps), job.seed));
}

/// Where the state of a run is kept, and how often.
struct Checkpoints {
  std::optional<std::string> folder;
  std::int64_t every = 0;
  bool resume = false;
};

Checkpoints read_checkpoints(const Values& values) {
  Checkpoints checkpoints{read_text(values, "checkpoint"), read_integer(values, "every", 0, kMostSteps),
                          values["resume"].as<bool>()};
  if (checkpoints.resume && !checkpoints.folder)
    throw Error(ErrorKind::usage, "option '--resume': expected '--checkpoint DIR' with it");
  if (checkpoints.folder) prepare_checkpoints(*checkpoints.folder, checkpoints.resume);
  return checkpoints;
}

/// "FRACTION:LATENCY".
std::optional<Anomaly> read_slow_shapes(const Values& values) {
  const std::optional<std::string> text = read_text(values, "slow-shapes");
  if (!text) return std::nullopt;
  Anomaly anomaly;
  const char* const end = text->data() + text->size();
  const auto [colon, first] = std::from_chars(text->data(), end, anomaly.fraction);
  const bool two = first == std::errc() && colon != end && *colon == ':';
  const auto [stop, second] = two ? std::from_chars(colon + 1, end, anomaly.latency)
                                  : std::from_chars_result{end, std::errc::invalid_argument};
  if (second != std::errc() || stop != end || !(anomaly.fraction > 0 && anomaly.fraction <= 1) ||
      !(anomaly.latency > 0 && anomaly.latency <= kMostLatency)) {
    throw Error(
        ErrorKind::usage,
        fmt::format("option '--slow-shapes': expected FRACTION:LATENCY, a fraction of samples above 0 "
                    "and at most 1 and a latency above 0 and at most {}, found '{}'",
                    kMostLatency, *text));
  }
  return anomaly;
}

/// What correction and slow shapes add to the options, which have the profile.
void read_correction(const Values& values, const Job& job, TrainingOptions& options) {
  const auto rule = values["correction"].as<std::string>();
  options.correct = rule != "off";
  if (rule == "published") {
    options.correction_rule = SwitchRule::published;
  } else if (rule == "keep") {
    options.correction_rule = SwitchRule::keep;
  } else if (rule != "off" && rule != "always") {
    throw Error(ErrorKind::usage,
                fmt::format("option '--correction': expected {}, found '{}'", kCorrectionRules, rule));
  }
  const std::optional<Anomaly> slow = read_slow_shapes(values);
  if ((slow || options.correct) && !options.profile) {
    throw Error(ErrorKind::usage, fmt::format("option '--{}': expected '--profile FILE' with it",
                                              slow ? "slow-shapes" : "correction"));
  }
  if (!slow) return;
  Batch samples;
  for (const Batch& batch : *job.batches) samples.insert(samples.end(), batch.begin(), batch.end());
  options.slower = std::make_shared<AnomalousCostModel>(*options.profile, job.plan, job.target->model,
                                                        samples, *slow, job.seed);
}

/// What steps leave behind.
struct StepLog {
  std::vector<TrainingStep> steps;
  std::deque<Timeline> recorded;  ///< the newest
};

/// Trains, and writes checkpoints as it goes. Returns the signal that ended it, or 0.
int run_steps(const Job& job, const Checkpoints& checkpoints, const std::string& scheduler, bool record,
              const RunIdentity& identity, LiveExecutor& executor, TrainingLoop& training, StepLog& log) {
  const StopOnSignals signals;
  TrainingLine line(job.steps);
  training.run([&](const TrainingStep& step, Timeline&& timeline) {
    log.steps.push_back(step);
    line.update(step);
    if (record) {
      log.recorded.push_back(std::move(timeline));
      if (log.recorded.size() > kMostRecorded) log.recorded.pop_front();
    }
    const bool ends = signals.signal() != 0 || step.step == job.steps;
    if (checkpoints.folder && (ends || (checkpoints.every > 0 && step.step % checkpoints.every == 0))) {
      save_checkpoint(*checkpoints.folder, identity, job.plan, scheduler, step.step, executor);
    }
    return signals.signal() == 0;
  });
  return signals.signal();
}

int train(const Values& values) {
  const Format format = read_format(values);
  const auto record = read_output(values, "record");
  const SchedulerChoice scheduler = read_step_scheduler(values);
  const DType dtype = read_dtype(values);
  Job job = read_job(values);
  read_batches(values, job);
  const Checkpoints checkpoints = read_checkpoints(values);
  const ModelSpec& model = job.target->model;
  const Program layout = lower(job.plan, model, job.batches->front(), any_assignment(job.plan));
  const std::unique_ptr<World> world =
      make_live_world(values["device"].as<std::string>(), layout.ranks(), read_cores(values));
  TrainingOptions options;
  options.cores = world->cores();
  options.profile = read_training_profile(read_text(values, "profile"), model, layout, *world, dtype);
  read_correction(values, job, options);
  LiveExecutor executor(job.plan, model, layout, *world, {dtype, job.seed});
  const RunIdentity identity = run_identity(model, job.data, job.seed, job.plan.gbs);
  if (checkpoints.resume) {
    options.first_step = resume_training(*checkpoints.folder, identity, executor) + 1;
  }
  options.last_step = job.steps;
  options.seed = job.seed;
  options.learning_rate = values["learning-rate"].as<double>();
  TrainingLoop training(job.plan, job.target, job.batches, scheduler, executor, options);

  StepLog log;
  const int signal =
      run_steps(job, checkpoints, scheduler.name, record.has_value(), identity, executor, training, log);
  if (record) {
    write_file_atomically(*record, to_json(TimelineFile{{log.recorded.begin(), log.recorded.end()}}));
  }
  print_table(step_table(log.steps, options), format);
  if (log.steps.empty()) {
    fmt::print(stderr, "dflop: nothing to do: step {} is done\n", options.first_step - 1);
  } else if (signal != 0 && log.steps.back().step < job.steps) {
    fmt::print(stderr, "dflop: stopped by signal {} after step {}\n", signal, log.steps.back().step);
    return 128 + signal;
  }
  return 0;
}

int run(const Values& values) {
  try {
    return train(values);
  } catch (const OutOfMemory& error) {
    fmt::print(stderr, "dflop: out of memory: {}\n", error.what());
    return 3;
  }
}

}  // namespace

Command train_command() {
  Command command{
      "train",
      "train a model under a plan on a live device",
      "Runs the plan's programs on real shapes of the data set, with pixels and tokens made up from the "
      "seed: answers follow\nfrom the image's class and the token before, so that the loss falls. "
      "Without a plan one rank encodes and one has the LLM.\nSIGINT and SIGTERM end the run after the "
      "step that is under way.",
      "dflop train --model tiny-vlm --device host --steps 10",
      command_options(),
      run};
  command.options.add_options()                                                    //
      ("plan", po::value<std::string>()->value_name("FILE"), "from 'dflop plan'")  //
      ("model", po::value<std::string>()->value_name("NAME|FILE"),
       "see 'dflop models'; tiny-vlm without a plan");
  add_live_options(command.options);
  add_cores_option(command.options);
  command.options.add_options()                                                                         //
      ("steps", po::value<std::int64_t>()->required()->value_name("N"), "iterations to train")          //
      ("gbs", po::value<std::int64_t>()->value_name("N"), "global batch size; the plan's, or 16")       //
      ("learning-rate", po::value<double>()->default_value(0.01, "0.01")->value_name("R"), "of AdamW")  //
      ("seed", po::value<std::int64_t>()->default_value(1)->value_name("S"),
       "of parameters, batches and contents")  //
      ("record", po::value<std::string>()->value_name("FILE"),
       "write the timelines of the last 32 steps, for 'dflop replay'")  //
      ("profile", po::value<std::string>()->value_name("FILE"),
       "from 'dflop profile': print beside each step's time what the simulator predicts, and the share of "
       "passes that are larger than any measured point")  //
      ("correction", po::value<std::string>()->default_value("off")->value_name("RULE"),
       "with --profile, learn from the steps which shapes take longer than it says and schedule with that: off, "
       "always, or only while it pays, as published or to keep at rest what paid ('dflop correction' studies "
       "both)")  //
      ("slow-shapes", po::value<std::string>()->value_name("FRACTION:LATENCY"),
       "with --profile, for experiments: passes wait longer for that fraction of the samples, in whole shapes, "
       "by so many durations of the largest stage each")  //
      ("checkpoint", po::value<std::string>()->value_name("DIR"),
       "write the state of the run there when it ends, and keep the two newest")  //
      ("every", po::value<std::int64_t>()->default_value(0)->value_name("K"),
       "and after every K steps; 0: only at the end")  //
      ("resume", po::bool_switch(),
       "go on from the newest checkpoint that can be read; any plan of the same model, seed, gbs and data "
       "will do");
  add_data_options(command.options, "traces/datasets/vision_mix.csv");
  command.options.add_options()(
      "scheduler", po::value<std::string>()->default_value("lpt")->value_name(joined(scheduler_names())),
      "microbatch scheduler; of a step while the one before it runs");
  add_objective_option(command.options);
  command.options.add_options()  //
      ("token-cap", po::value<std::int64_t>()->value_name("N"),
       "LLM tokens of a microbatch on one dp rank at most")  //
      ("time-limit", po::value<double>()->value_name("SECONDS"),
       "wall-clock limit of the scheduler for each step; what it has found when the step begins is taken. "
       "Without it the same seed gives the same schedules");
  add_format_option(command.options);
  return command;
}

}  // namespace dflop
