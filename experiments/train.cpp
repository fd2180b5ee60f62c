// dflop train: trains a model under a plan on a live device.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <memory>

#include "core/error.hpp"
#include "core/lowering.hpp"
#include "costmodel/schedule_tables.hpp"
#include "experiments/command.hpp"
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

/// `predicted`: steps have a predicted time.
Table step_table(const std::vector<TrainingStep>& steps, bool predicted) {
  Table table;
  table.columns = {{"step", "step"},
                   {"loss", "loss", 4},
                   {"iteration_s", "s", 4},
                   {"llm_tokens_per_s", "tokens/s", 0},
                   {"idle_fraction", "idle %", 1, 100},
                   {"peak_memory_bytes", "peak MiB", 1, 0x1p-20},
                   {"schedule_wait_s", "waited ms", 2, 1e3}};
  if (predicted) {
    table.columns.push_back({"predicted_s", "predicted s", 4});
    table.columns.push_back({"extrapolated_fraction", "beyond profile %", 1, 100});
  }
  for (const TrainingStep& s : steps) {
    table.rows.push_back({s.step, s.loss, s.time.count(), s.tokens_per_s(), s.idle_fraction,
                          s.peak_memory.count, s.waited.count()});
    if (!predicted) continue;
    table.rows.back().push_back(s.predicted->count());
    table.rows.back().push_back(s.extrapolated_fraction);
  }
  return table;
}

int train(const Values& values) {
  const Format format = read_format(values);
  const auto record = read_output(values, "record");
  const std::optional<std::string> folder = read_text(values, "checkpoint");
  const bool resume = values["resume"].as<bool>();
  if (resume && !folder)
    throw Error(ErrorKind::usage, "option '--resume': expected '--checkpoint DIR' with it");
  const auto every = read_integer(values, "every", 0, kMostSteps);
  const SchedulerChoice scheduler = read_step_scheduler(values);
  const std::uint64_t seed = read_seed(values);
  const auto steps = read_integer(values, "steps", 1, kMostSteps);
  const bool has_plan = values.count("plan") > 0;
  const std::string where = has_plan ? values["plan"].as<std::string>() : "";
  Plan plan;
  if (has_plan) plan = read_plan(values);
  const std::string model_name = has_plan                    ? plan.model
                                 : values.count("model") > 0 ? values["model"].as<std::string>()
                                                             : kDefaultModel;
  const auto owned =
      std::make_shared<const Target>(model_name, has_plan ? plan.cluster : kDefaultCluster, where);
  const Target& target = *owned;
  if (!has_plan) {
    const auto gbs = values.count("gbs") > 0 ? read_integer(values, "gbs", 1, kMostGbs) : 16;
    plan = default_plan(model_name, kDefaultCluster, target.model, static_cast<int>(gbs));
  }
  validate(plan, target.model, target.cluster, has_plan ? where : "plan");
  require_live_plan(plan, where);
  if (steps * plan.gbs > kMostSamplesInAll) {
    throw Error(ErrorKind::usage, fmt::format("option '--steps': {} steps of {} samples are more than {}",
                                              steps, plan.gbs, kMostSamplesInAll));
  }
  const auto data = values["data"].as<std::string>();
  const std::vector<Sample> samples = load_samples(data, read_preprocess_options(values, target.model, seed));
  const auto batches = std::make_shared<const std::vector<Batch>>(
      make_batches(samples, plan.gbs, static_cast<int>(steps), seed));

  if (folder) prepare_checkpoints(*folder, resume);
  const Program layout = lower(plan, target.model, batches->front(), any_assignment(plan));
  const std::unique_ptr<World> world = make_world(values["device"].as<std::string>(), layout.ranks());
  const std::optional<ProfiledCostModel> cost =
      read_training_profile(read_text(values, "profile"), target.model, layout, *world);
  LiveExecutor executor(plan, target.model, layout, *world, {DType::f32, seed});
  const RunIdentity identity = run_identity(target.model, data, seed, plan.gbs);
  TrainingOptions options;
  if (resume) options.first_step = resume_training(*folder, identity, executor) + 1;
  options.last_step = steps;
  options.seed = seed;
  options.learning_rate = values["learning-rate"].as<double>();
  if (cost) options.predicting = &*cost;
  TrainingLoop training(plan, owned, batches, scheduler, executor, options);

  std::vector<TrainingStep> done;
  std::deque<Timeline> recorded;
  const StopOnSignals signals;
  {
    TrainingLine line(steps);
    training.run([&](const TrainingStep& step, Timeline&& timeline) {
      done.push_back(step);
      line.update(step);
      if (record) {
        recorded.push_back(std::move(timeline));
        if (recorded.size() > kMostRecorded) recorded.pop_front();
      }
      const bool ends = signals.signal() != 0 || step.step == steps;
      if (folder && (ends || (every > 0 && step.step % every == 0))) {
        save_checkpoint(*folder, identity, plan, scheduler.name, step.step, executor);
      }
      return signals.signal() == 0;
    });
  }
  if (record) {
    write_file_atomically(*record, to_json(TimelineFile{{recorded.begin(), recorded.end()}}));
  }
  print_table(step_table(done, cost.has_value()), format);
  if (done.empty()) fmt::print(stderr, "dflop: nothing to do: step {} is done\n", options.first_step - 1);
  if (signals.signal() != 0 && !done.empty() && done.back().step < steps) {
    fmt::print(stderr, "dflop: stopped by signal {} after step {}\n", signals.signal(), done.back().step);
    return 128 + signals.signal();
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
       "see 'dflop models'; tiny-vlm without a plan")  //
      ("device", po::value<std::string>()->default_value("host")->value_name("DEVICE"),
       "host: every rank is a thread")                                                                  //
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
