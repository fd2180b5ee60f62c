// dflop kernels tune measures the variants of operations into a file of kernels.
#include <fmt/format.h>

#include <filesystem>

#include "backend/profile/kernel_bench.hpp"
#include "core/kernel_choice/kernel_calls.hpp"
#include "core/padded_model.hpp"
#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/stop_signals.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/live/device_options.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr int kMaxSize = 4096;  // samples of a microbatch
constexpr int kMicrobatchesOfSize = 64;
constexpr double kMaxTuningS = 86'400;
constexpr double kNsPerUs = 1e-3;

/// Returns a row for each key with the variant that is chosen there. The heads of an attention stand as they
/// are packed: query heads x 512 + key heads.
Table choices_table(const KernelTable& kernels) {
  Table table;
  table.columns = {{"operation", "operation"},
                   {"dtype", "dtype"},
                   {"inner", "inner"},
                   {"outer", "outer"},
                   {"causal", "causal"},
                   {"tokens", "tokens"},
                   {"length", "length"},
                   {"variant", "best variant"},
                   {"mean_ns", "us", 1, kNsPerUs},
                   {"default_mean_ns", "default us", 1, kNsPerUs},
                   {"gain", "x default", 3}};
  const auto mean_of = [](const KernelStats& stats) { return stats.count > 0 ? Cell(stats.mean) : Cell(); };
  for (const auto& [key, entry] : kernels.entries()) {
    const bool attention = key.length > 0;
    const std::size_t best = kernels.choose(key);
    const bool both = entry.front().count > 0 && entry[best].count > 0;
    table.rows.push_back({to_string(key.operation), to_string(key.dtype), key.inner, key.outer,
                          attention ? Cell(key.causal) : Cell(), key.tokens,
                          attention ? Cell(key.length) : Cell(), kernels.names(key.operation)[best],
                          mean_of(entry[best]), mean_of(entry.front()),
                          both ? Cell(entry.front().mean / entry[best].mean) : Cell()});
  }
  return table;
}

/// Returns the work of random microbatches of 1, 2, 4, ... samples.
std::vector<Work> draw_microbatches(const std::vector<Sample>& samples, std::int64_t most, Random random) {
  std::vector<Work> microbatches;
  for (std::int64_t size = 1; size <= most; size *= 2) {
    for (int m = 0; m < kMicrobatchesOfSize; ++m) {
      Work& work = microbatches.emplace_back();
      for (std::int64_t i = 0; i < size; ++i) {
        const Sample& sample = samples[random.below(samples.size())];
        work.encoder += sample.encoder();
        work.llm += sample.llm();
      }
    }
  }
  return microbatches;
}

/// Returns the calls of one rank of a stage with all layers of the model, in each mode, forward and backward,
/// on these microbatches: one call for each key, with their number as weight. @pre tp splits the model
std::vector<TunedCall> calls_of(const ModelSpec& model, const std::vector<TpMode>& modes,
                                const std::vector<Work>& microbatches, const LocalRank& rank) {
  std::map<KernelKey, double> weights;
  for (const TpMode& mode : modes) {
    const ModelSpec padded = with_padded_rows(model, mode.tp, rank.device->row_alignment());
    Stage stage;
    stage.encoder_layers = model.encoder.layers;
    stage.llm_layers = model.llm.layers;
    stage.connector = model.encoder.layers > 0;
    stage.embedding = stage.head = true;
    stage.tp = mode.tp;
    stage.sequence_parallel = mode.sequence_parallel;
    stage.recomputation = Recomputation::none;
    for (const Work& work : microbatches) {
      for (const Op op : {Op::forward, Op::backward}) {
        for (const StageCall& made : stage_kernel_calls(padded, stage, stage.connector, op, work)) {
          KernelCall call = made.call;
          call.dtype = rank.kernels->dtype();
          weights[KernelKey(call)] += static_cast<double>(made.times);
        }
      }
    }
  }
  std::vector<TunedCall> calls;
  for (const auto& [key, weight] : weights) calls.push_back({key, weight});
  return calls;
}

/// Measures the calls, until a signal if there is one, and prints what was left out. Returns the exit code.
int measure(const LocalRank& rank, const std::vector<TunedCall>& calls, TuningOptions options,
            KernelTable& measured) {
  const StopOnSignals signals;
  int exit_code = 0;
  try {
    Progress progress("measuring");
    options.progress = [&](std::int64_t done, std::int64_t total) {
      signals.check();
      progress.update(done, total);
    };
    const LeftOut left_out = tune_kernels(context_of(rank), calls, options, measured);
    if (left_out.without_memory > 0)
      say("dflop: note: {} keys do not fit in memory and are skipped\n", left_out.without_memory);
    if (left_out.too_long > 0)
      say("dflop: note: {} keys take longer than the remaining budget and are skipped\n", left_out.too_long);
  } catch (const Stopped& stopped) {
    say("dflop: {}\n", stopped.what());
    exit_code = stopped.exit_code();
  }
  say("dflop: kernels: {} of {} keys were measured\n", measured.entries().size(), calls.size());
  return exit_code;
}

int run_tune(const Values& values) {
  const Format format = read_format(values);
  const auto path = values["kernels-file"].as<std::string>();
  if (values["partition"].as<bool>()) {
    refuse_option("partition", "expected none, as kernels are measured on whole devices");
  }
  LiveDevice device = read_local_device(values);
  device.device_cores = read_device_cores(values, device);
  const ModelSpec model = find_model(values["model"].as<std::string>());
  const std::vector<TpMode> modes = read_tp_modes(values);
  require_tp_modes(model, modes);
  const std::int64_t most = read_integer(values, "samples", 1, kMaxSize);
  const TuningOptions options{.seed = read_seed(values),
                              .budget = Seconds(read_number(values, "budget-s", 0, kMaxTuningS))};
  check_output(path);
  const bool exists = std::filesystem::exists(path);
  if (exists && !values["merge"].as<bool>()) {
    throw Error(
        ErrorKind::usage,
        fmt::format(
            "option '--kernels-file': '{}' is there already; add to it with --merge, or name another file",
            path));
  }
  const std::unique_ptr<World> world = make_live_world(device, 1);
  const LocalRank rank(*world, 0, read_dtype(values));
  const VariantNames names = rank.kernels->variant_names();
  KernelFile file{DFLOP_VERSION, kernel_machine(*world), KernelTable(names)};
  if (exists) file.table = read_kernel_file(path, file.machine, names).table;
  const std::vector<Sample> samples = read_samples(values, model, options.seed);
  const std::vector<TunedCall> calls =
      calls_of(model, modes, draw_microbatches(samples, most, Random(options.seed)), rank);
  KernelTable measured(names);
  const int exit_code = measure(rank, calls, options, measured);
  if (measured.entries().empty()) return exit_code;
  file.table.merge(measured);
  print_table(choices_table(file.table), format);
  write_file_atomically(path, with_provenance(to_json(file), made_here(values)));
  return exit_code;
}

}  // namespace

Command kernels_tune_command() {
  Command command{
      .name = "kernels tune",
      .task = Task::run,
      .summary = "measure kernel variants for the calls of a model's microbatches",
      .description =
          R"(Draws microbatches from a data set, finds the calls that the model makes on them, forward and
backward, and measures the variants of each call on one rank, with other data in the caches. Calls share the
budget by their expected time; variants much slower than the best are dropped early, but never the default.
'dflop train --kernels profile' then runs the fastest variant that is certainly faster than the default (95 %
intervals do not overlap), else the default. Prints a row for each key: an operation with its sizes on one
rank, its token bucket and the bucket of its mean sequence length, with two buckets per power of two. A file
is valid for one machine, driver, libraries, set of variants and number of threads of a rank; anywhere else it
is rejected. Measured times differ from run to run.)",
      .example = "dflop kernels tune --model tiny-vlm --budget-s 2 --kernels-file tiny.kernels",
      .run = run_tune,
  };
  add_kernels_file_option(command.options, text("FILE", kKernelFile).common());
  add_measuring_time_option(command.options, 20);
  command.options.add({
      {"merge", flag().common(), "merge into the existing file; newer measurements count more"},
  });
  add_model_option(command.options, text("NAME|FILE|DIR").required());
  add_live_options(command.options);
  add_measured_tp_options(command.options);
  command.options.add({
      {"samples", whole("N", 8), "draw microbatches of 1, 2, 4, ..., N samples from the data"},
  });
  add_seed_option(command.options);
  add_device_cores_option(command.options);
  add_data_options(command.options, "traces/datasets/vision_mix.csv");
  return command;
}

}  // namespace dflop
