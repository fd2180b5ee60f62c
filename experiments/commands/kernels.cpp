// dflop kernels measures the variants of operations and shows what a file of them says.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "backend/profile/kernel_oracle.hpp"
#include "core/kernel_choice/kernel_sizes.hpp"
#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/stop_signals.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/live_setup.hpp"
#include "experiments/training/tp_modes.hpp"
#include "experiments/training/tuning.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr int kMostSize = 4096;  // samples of a microbatch
constexpr double kMostTuningS = 86'400;
constexpr std::int64_t kMostChecked = 1'000'000;
constexpr int kMostRounds = 1000;
constexpr double kNsPerUs = 1e-3;
constexpr double kMsPerNs = 1e-6;

KernelFile read_file(const Values& values, const std::string& option) {
  const auto path = values[option].as<std::string>();
  return parse_kernel_file(read_text_file(path), path);
}

std::vector<Column> key_columns() {
  return {{"operation", "operation"}, {"dtype", "dtype"},   {"inner", "inner"},  {"outer", "outer"},
          {"causal", "causal"},       {"tokens", "tokens"}, {"length", "length"}};
}

bool is_attention(KernelOperation operation) {
  return operation == KernelOperation::attention || operation == KernelOperation::attention_backward;
}

/// Returns the cells of a key. The heads of an attention stand as they are packed: query heads x 512 + key
/// heads.
std::vector<Cell> key_cells(KernelKey key) {
  const KernelCall call = key.call();
  const bool attention = is_attention(call.operation);
  return {to_string(call.operation),
          kDTypeNames[call.dtype],
          call.inner,
          call.outer,
          attention ? Cell(call.causal) : Cell(),
          call.tokens,
          attention ? Cell(call.length) : Cell()};
}

/// Returns the keys of tables in an order for people: by operation, precision and sizes, then tokens and
/// length.
std::vector<KernelKey> sorted_keys(std::initializer_list<const KernelTable*> tables) {
  const auto order = [](KernelKey key) {
    const KernelCall call = key.call();
    return std::tuple(call.operation, call.dtype, call.inner, call.outer, call.causal, call.tokens,
                      call.length);
  };
  const auto before = [&](KernelKey a, KernelKey b) { return order(a) < order(b); };
  std::set<KernelKey, decltype(before)> keys(before);
  for (const KernelTable* table : tables) {
    keys.insert(table->entries().keys().begin(), table->entries().keys().end());
  }
  return {keys.begin(), keys.end()};
}

Cell mean_of(const KernelStats& stats) {
  return stats.count > 0 ? Cell(stats.mean) : Cell();
}

/// Returns the gain over the default; nothing where either was not measured.
Cell gain_of(const KernelTable::Entry& entry, std::size_t variant) {
  if (entry.front().count == 0 || entry[variant].count == 0) return {};
  return KernelTable::compare(entry, variant).gain;
}

/// Returns a row for each key with the variant that is chosen there.
Table choices_table(const KernelTable& kernels) {
  Table table;
  table.columns = key_columns();
  table.columns.insert(table.columns.end(), {{"variant", "best variant"},
                                             {"mean_ns", "us", 1, kNsPerUs},
                                             {"default_mean_ns", "default us", 1, kNsPerUs},
                                             {"gain", "x default", 3}});
  for (const KernelKey key : sorted_keys({&kernels})) {
    const KernelTable::Entry& entry = *kernels.find(key);
    const std::size_t best = kernels.choose(key);
    std::vector<Cell>& row = table.rows.emplace_back(key_cells(key));
    row.insert(row.end(), {kernels.names(key.operation())[best], mean_of(entry[best]), mean_of(entry.front()),
                           gain_of(entry, best)});
  }
  return table;
}

int run_list(const Values& values) {
  const Format format = read_format(values);
  print_table(choices_table(read_file(values, "kernels-file").table), format);
  return 0;
}

/// Says why a variant is chosen or is not.
std::string reason(const KernelTable& table, KernelKey key, std::size_t variant, std::size_t chosen) {
  const KernelTable::Entry& entry = *table.find(key);
  if (!KernelTable::is_measured(entry)) {
    if (variant != chosen) return "the default was not measured here";
    return table.basis_key(key) ? "chosen by the nearest key" : "chosen: it was not measured here";
  }
  if (entry[variant].count == 0) return "not measured";
  if (variant == chosen) return variant == 0 ? "chosen: none is surely faster" : "chosen";
  if (variant == 0) return "the default, slower";
  const KernelComparison against = KernelTable::compare(entry, variant);
  if (against.high < 1) return "surely slower than the default";
  if (against.low > 1) return "faster than the default, not the fastest";
  return "not surely faster than the default";
}

int run_explain(const Values& values) {
  const Format format = read_format(values);
  const KernelFile file = read_file(values, "kernels-file");
  Table table;
  table.columns = key_columns();
  table.columns.insert(table.columns.end(), {{"variant", "variant"},
                                             {"calls", "calls"},
                                             {"mean_ns", "us", 1, kNsPerUs},
                                             {"half_width_ns", "+- us", 1, kNsPerUs},
                                             {"gain", "x default", 3},
                                             {"gain_low", "at least", 3},
                                             {"gain_high", "at most", 3},
                                             {"reason", "why"}});
  const auto finite = [](double value) { return std::isfinite(value) ? Cell(value) : Cell(); };
  for (const KernelKey key : sorted_keys({&file.table})) {
    const KernelTable::Entry& entry = *file.table.find(key);
    const std::size_t chosen = file.table.choose(key);
    for (std::size_t v = 0; v < entry.size(); ++v) {
      std::vector<Cell>& row = table.rows.emplace_back(key_cells(key));
      row.insert(row.end(), {file.table.names(key.operation())[v], entry[v].count, mean_of(entry[v]),
                             finite(entry[v].half_width())});
      if (entry[v].count == 0 || entry.front().count == 0) {
        row.insert(row.end(), {Cell(), Cell(), Cell()});
      } else {
        const KernelComparison against = KernelTable::compare(entry, v);
        row.insert(row.end(), {against.gain, finite(against.low), finite(against.high)});
      }
      row.emplace_back(reason(file.table, key, v, chosen));
    }
  }
  print_table(table, format);
  return 0;
}

int run_compare_kernels(const Values& values) {
  const Format format = read_format(values);
  const KernelFile a = read_file(values, "kernels-file");
  const KernelFile b = read_file(values, "other");
  Table table;
  table.columns = key_columns();
  table.columns.insert(table.columns.end(), {{"variant", "variant"},
                                             {"other_variant", "other's variant"},
                                             {"gain", "x default", 3},
                                             {"other_gain", "other's x default", 3},
                                             {"mean_ratio", "default us, other's / ours", 3}});
  for (const KernelKey key : sorted_keys({&a.table, &b.table})) {
    std::vector<Cell>& row = table.rows.emplace_back(key_cells(key));
    const auto variant = [&](const KernelTable& of) {
      return of.find(key) == nullptr ? Cell() : Cell(of.names(key.operation())[of.choose(key)]);
    };
    const auto gain = [&](const KernelTable& of) {
      const KernelTable::Entry* entry = of.find(key);
      return entry == nullptr ? Cell() : gain_of(*entry, of.choose(key));
    };
    const KernelTable::Entry* own = a.table.find(key);
    const KernelTable::Entry* other = b.table.find(key);
    const bool both =
        own != nullptr && other != nullptr && own->front().count > 0 && other->front().count > 0;
    row.insert(row.end(), {variant(a.table), variant(b.table), gain(a.table), gain(b.table),
                           both ? Cell(other->front().mean / own->front().mean) : Cell()});
  }
  print_table(table, format);
  return 0;
}

/// A TuningRequest is what 'dflop kernels tune' and 'check' are asked for.
struct TuningRequest {
  LiveDevice device;
  DType dtype = DType::f32;
  ModelSpec model;
  std::vector<TpMode> modes;
  MicrobatchDraws draws;
  TuningOptions options;
};

TuningRequest read_tuning(const Values& values) {
  TuningRequest request;
  if (values["partition"].as<bool>()) {
    refuse_option("partition", "expected none, as kernels are measured on whole devices");
  }
  request.device = read_local_device(values);
  request.device.device_cores = read_device_cores(values, request.device);
  request.dtype = read_dtype(values);
  request.model = find_model(values["model"].as<std::string>());
  request.modes = read_tp_modes(values);
  require_tp_modes(request.model, request.modes);
  for (const TpMode& mode : request.modes) {
    require_kernel_sizes(request.model, mode.tp, values["model"].as<std::string>());
  }
  request.draws.sizes.clear();
  const std::int64_t most = read_integer(values, "samples", 1, kMostSize);
  for (int size = 1; size <= most; size *= 2) request.draws.sizes.push_back(size);
  request.draws.seed = request.options.seed = read_seed(values);
  return request;
}

/// Returns the calls of the data's microbatches on a rank's device.
std::vector<TunedCall> calls_of(const Values& values, const TuningRequest& request, const LocalRank& rank) {
  const std::vector<Sample> samples = read_samples(values, request.model, request.draws.seed);
  return calls_of_microbatches(request.model, request.modes, draw_microbatches(samples, request.draws),
                               request.dtype, rank.device->row_alignment());
}

void add_tuning_options(Options& options) {
  add_model_option(options, text("NAME|FILE|DIR").required());
  add_live_options(options);
  add_measured_tp_options(options);
  options.add({
      {"samples", whole("N", 8), "draw microbatches of 1, 2, 4, ..., N samples from the data"},
  });
  add_seed_option(options);
  add_device_cores_option(options);
  add_data_options(options, "traces/datasets/vision_mix.csv");
}

/// Calls work(options), with progress that is shown and that a signal ends. Returns the exit code.
template <typename Work>
int run_until_stopped(const char* title, TuningOptions options, const Work& work) {
  const StopOnSignals signals;
  try {
    Progress progress(title);
    options.progress = [&](std::int64_t done, std::int64_t total) {
      signals.check();
      progress.update(done, total);
    };
    work(options);
  } catch (const Stopped& stopped) {
    say("dflop: {}\n", stopped.what());
    return stopped.exit_code();
  }
  return 0;
}

int run_tune(const Values& values) {
  const Format format = read_format(values);
  const auto path = values["kernels-file"].as<std::string>();
  TuningRequest request = read_tuning(values);
  request.options.budget = Seconds(read_number(values, "budget-s", 0, kMostTuningS));
  check_output(path);
  const bool merges = values["merge"].as<bool>();
  const bool exists = std::filesystem::exists(path);
  if (exists && !merges) {
    throw Error(
        ErrorKind::usage,
        fmt::format(
            "option '--kernels-file': '{}' is there already; add to it with --merge, or name another file",
            path));
  }
  const std::unique_ptr<World> world = make_live_world(request.device, 1);
  const LocalRank rank(*world, 0, request.dtype);
  const std::vector<TunedCall> calls = calls_by_key(calls_of(values, request, rank));
  const KernelFile fresh{DFLOP_VERSION, kernel_machine(*world), KernelTable(rank.kernels->variant_names())};
  if (exists) read_kernel_file(path, fresh.machine, fresh.table.names());  // refused before the measuring
  KernelTable measured(fresh.table.names());
  const int exit_code = run_until_stopped("measuring", request.options, [&](const TuningOptions& options) {
    const LeftOut left_out = tune_kernels(context_of(rank), calls, options, measured);
    if (left_out.without_memory > 0)
      say("dflop: note: {} keys do not fit in memory and are skipped\n", left_out.without_memory);
    if (left_out.too_long > 0)
      say("dflop: note: {} keys take longer than the remaining budget and are skipped\n", left_out.too_long);
  });
  say("dflop: kernels: {} of {} keys were measured\n", measured.entries().size(), calls.size());
  if (measured.entries().size() == 0) return exit_code;
  // Another process may have written the file meanwhile, of which nothing is lost.
  KernelFile file = fresh;
  if (std::filesystem::exists(path)) {
    if (!exists) say("dflop: note: '{}' was created meanwhile; the measurements are added to it\n", path);
    file.table = read_kernel_file(path, fresh.machine, fresh.table.names()).table;
  }
  file.table.merge(measured);
  print_table(choices_table(file.table), format);
  write_file_atomically(path, with_provenance(to_json(file), made_here(values)));
  return exit_code;
}

/// Draws some of the calls.
std::vector<TunedCall> held_out_calls(std::vector<TunedCall> all, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  random.shuffle(std::span(all));
  if (std::ssize(all) > count) all.resize(static_cast<std::size_t>(count));
  return all;
}

int run_check(const Values& values) {
  const Format format = read_format(values);
  const auto path = values["kernels-file"].as<std::string>();
  const TuningRequest request = read_tuning(values);
  const std::int64_t count = read_integer(values, "calls", 1, kMostChecked);
  const auto rounds = static_cast<int>(read_integer(values, "rounds", 1, kMostRounds));
  const std::unique_ptr<World> world = make_live_world(request.device, 1);
  const LocalRank rank(*world, 0, request.dtype);
  const std::vector<TunedCall> calls =
      held_out_calls(calls_of(values, request, rank), count, request.draws.seed);
  const KernelFile file = read_kernel_file(path, kernel_machine(*world), rank.kernels->variant_names());
  ChoiceQuality quality;
  const int exit_code = run_until_stopped("checking", request.options, [&](const TuningOptions& options) {
    quality = check_choices(context_of(rank), file.table, calls, rounds, options);
  });
  if (exit_code != 0) return exit_code;
  Table table;
  table.columns = {{"calls", "calls"},
                   {"chosen_ns", "chosen ms", 2, kMsPerNs},
                   {"default_ns", "default ms", 2, kMsPerNs},
                   {"oracle_ns", "oracle ms", 2, kMsPerNs},
                   {"of_oracle", "% of oracle", 1, 100},
                   {"over_default", "x default", 3}};
  table.rows.push_back({quality.calls, quality.chosen_ns, quality.default_ns, quality.oracle_ns,
                        quality.oracle_ns / quality.chosen_ns, quality.default_ns / quality.chosen_ns});
  print_table(table, format);
  return 0;
}

void add_file_option(Options& options) {
  add_kernels_file_option(options, text("FILE", kKernelFile).common());
}

}  // namespace

Command kernels_command() {
  Command command{
      .name = "kernels",
      .task = Task::run,
      .summary = "show the kernel variants that a kernel file chooses",
      .description =
          R"(Prints a row for each key of a file: an operation with its sizes on one rank, its token bucket
and the bucket of its mean sequence length, with two buckets per power of two. The variant is the one that
'--kernels profile' runs: the fastest variant that is certainly faster than the default (95 % intervals do not
overlap), else the default. A file is valid for one machine, driver, libraries, set of variants and number of
threads of a rank; anywhere else it is rejected.)",
      .example = "dflop kernels --kernels-file tiny.kernels",
      .run = run_list,
  };
  add_file_option(command.options);
  return command;
}

Command kernels_tune_command() {
  Command command{
      .name = "kernels tune",
      .task = Task::run,
      .summary = "measure kernel variants for the calls of a model's microbatches",
      .description =
          R"(Draws microbatches from a data set, finds the calls that the model makes on them, forward and
backward, and measures the variants of each call on one rank, with other data in the caches. Calls share the
budget by their expected time, and calls that take little time are skipped first; variants much slower than the best are dropped early, but never the default.
'dflop train --kernels profile' then runs the fastest. Prints the same as 'dflop kernels'. Measured times
differ from run to run.)",
      .example = "dflop kernels tune --model tiny-vlm --budget-s 2 --kernels-file tiny.kernels",
      .run = run_tune,
  };
  add_file_option(command.options);
  add_measuring_time_option(command.options, 20);
  command.options.add({
      {"merge", flag().common(), "merge into the existing file; newer measurements count more"},
  });
  add_tuning_options(command.options);
  return command;
}

Command kernels_check_command() {
  Command command{
      .name = "kernels check",
      .task = Task::run,
      .summary = "compare a file's choices with the best choices on other microbatches",
      .description =
          R"(Draws calls of microbatches with another seed than the file's and runs all variants of each.
Prints the total time of the file's choices, next to the default and an oracle. The oracle takes for each call
the variant that was fastest in every second round; the times are from the other rounds.)",
      .example = "dflop kernels check --model tiny-vlm --seed 2 --calls 20 --kernels-file tiny.kernels",
      .run = run_check,
  };
  add_file_option(command.options);
  add_tuning_options(command.options);
  command.options.add({
      {"calls", whole("N", 100), "number of calls to draw"},
      {"rounds", whole("N", 8), "number of rounds; each runs each variant of a call twice"},
  });
  return command;
}

Command kernels_explain_command() {
  Command command{
      .name = "kernels explain",
      .task = Task::run,
      .summary = "show why each variant in a kernel file is chosen or not",
      .description =
          R"(Prints a row for each variant of each key: how often it ran, its mean with half the width of its
95 % interval, and its gain over the default with the min and max gain that both intervals allow.)",
      .example = "dflop kernels explain --kernels-file tiny.kernels",
      .run = run_explain,
  };
  add_file_option(command.options);
  return command;
}

Command kernels_compare_command() {
  Command command{
      .name = "kernels compare",
      .task = Task::run,
      .summary = "compare two kernel files",
      .description =
          R"(Prints what two files choose for each key in either file, with the gains over the default.)",
      .example = "dflop kernels compare --kernels-file tiny.kernels --other tiny.kernels",
      .run = run_compare_kernels,
  };
  add_file_option(command.options);
  command.options.add({{"other", text("FILE").required(), "kernel file to compare with"}});
  return command;
}

}  // namespace dflop
