#include "traces/files/kernels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "core/refuse.hpp"
#include "traces/files/provenance.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kKernelsSchema = "dflop.kernels";
constexpr std::string_view kStateSchema = "dflop.kernel_state";
constexpr int kKernelsVersion = 1;
constexpr int kStateVersion = 1;
constexpr std::size_t kMostVariants = 32;
constexpr std::int64_t kMostCalls = KernelStats::kMostCount;
constexpr std::int32_t kMostSize = (1 << 21) - 1;  // of a KernelKey
constexpr std::int64_t kMostKeyTokens = (std::int64_t{1} << 31) - 1;
constexpr double kLongest = 1e18;  // ns, thirty years; variances are sums of squares

// These functions write and read keys, each as the call in the middle of its buckets.

void write_key(JsonWriter& writer, KernelKey key) {
  const KernelCall call = key.call();
  writer.field("operation", to_string(call.operation));
  writer.field("dtype", kDTypeNames[call.dtype]);
  writer.field("inner", call.inner);
  writer.field("outer", call.outer);
  writer.field("causal", call.causal);
  writer.field("tokens", call.tokens);
  writer.field("length", call.length);
}

constexpr std::string_view kKeyFields[] = {"operation", "dtype",  "inner", "outer",
                                           "causal",    "tokens", "length"};

std::vector<std::string_view> with_key_fields(std::initializer_list<std::string_view> others) {
  std::vector<std::string_view> fields(std::begin(kKeyFields), std::end(kKeyFields));
  fields.insert(fields.end(), others);
  return fields;
}

KernelKey read_key(const JsonValue& json) {
  KernelCall call;
  call.operation = json.at("operation").choice<KernelOperation>();
  call.dtype =
      static_cast<std::uint8_t>(json.at("dtype").choice_index({kDTypeNames.begin(), kDTypeNames.end()}));
  call.inner = json.at("inner").integer<std::int32_t>(0, kMostSize);
  call.outer = json.at("outer").integer<std::int32_t>(0, kMostSize);
  call.causal = json.at("causal").boolean();
  call.tokens = json.at("tokens").integer<std::int64_t>(0, kMostKeyTokens);
  call.length = json.at("length").integer<std::int64_t>(0, kMostKeyTokens);
  return KernelKey(call);
}

// These functions write and read durations.

void write_stats(JsonWriter& writer, const std::vector<KernelStats>& stats) {
  writer.row("count", stats, [](const KernelStats& s) { return s.count; });
  writer.row("mean_ns", stats, [](const KernelStats& s) { return s.mean; });
  writer.row("variance_ns2", stats, [](const KernelStats& s) { return s.variance; });
}

std::vector<KernelStats> read_stats(const JsonValue& json, std::size_t variants) {
  const std::vector<std::int64_t> counts = json.at("count").integers(0, kMostCalls);
  if (counts.size() != variants) {
    json.at("count").refuse("expected a count for each of the operation's {} variants, found {}", variants,
                            counts.size());
  }
  const std::vector<double> means = json.at("mean_ns").numbers(variants, 0, kLongest);
  const std::vector<double> variances = json.at("variance_ns2").numbers(variants, 0, kLongest * kLongest);
  std::vector<KernelStats> stats;
  for (std::size_t v = 0; v < variants; ++v) {
    if (counts[v] > 0 && means[v] <= 0) {
      json.at("mean_ns").refuse("expected a mean above 0 of {} calls, found {}", counts[v], means[v]);
    }
    stats.push_back({counts[v], means[v], variances[v]});
  }
  return stats;
}

void write_variant_names(JsonWriter& writer, const VariantNames& names) {
  writer.begin_object("variants");
  for (const KernelOperation operation : all_of<KernelOperation>()) {
    const std::vector<std::string>& of_operation = names[static_cast<std::size_t>(operation)];
    if (!of_operation.empty()) writer.row(to_string(operation), of_operation);
  }
  writer.end_object();
}

std::vector<std::string> read_variants_of(const JsonValue& json) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const JsonValue& element : json.elements()) {
    names.push_back(element.string());
    if (!known.insert(names.back()).second)
      element.refuse("expected each name once, found '{}' twice", names.back());
  }
  if (names.empty() || names.size() > kMostVariants) {
    json.refuse("expected one to {} names, found {}", kMostVariants, names.size());
  }
  return names;
}

VariantNames read_variant_names(const JsonValue& json) {
  json.require_keys({}, names_of(all_of<KernelOperation>()));
  VariantNames names;
  for (const KernelOperation operation : all_of<KernelOperation>()) {
    const std::string_view name = to_string(operation);
    if (json.has(name)) names[static_cast<std::size_t>(operation)] = read_variants_of(json.at(name));
  }
  return names;
}

void write_kernel_table(JsonWriter& writer, const KernelTable& table) {
  write_variant_names(writer, table.names());
  writer.begin_array("keys");
  for (std::size_t i = 0; i < table.entries().size(); ++i) {
    writer.begin_object();
    write_key(writer, table.entries().keys()[i]);
    write_stats(writer, table.entries().value(i));
    writer.end_object();
  }
  writer.end_array();
}

/// Reads a key that must be unique, for an operation with variants.
KernelKey read_own_key(const JsonValue& json, const KernelTable& table, bool is_known) {
  const KernelKey key = read_key(json);
  if (table.names(key.operation()).empty()) {
    json.at("operation")
        .refuse("expected an operation of 'variants', found '{}'", to_string(key.operation()));
  }
  if (is_known) json.refuse("expected each key once: its buckets are those of a row before");
  return key;
}

KernelTable read_kernel_table(const JsonValue& root) {
  KernelTable table(read_variant_names(root.at("variants")));
  for (const JsonValue& row : root.at("keys").elements()) {
    row.require_keys(with_key_fields({"count", "mean_ns", "variance_ns2"}));
    const KernelKey key = read_own_key(row, table, table.find(read_key(row)) != nullptr);
    table.entry(key) = read_stats(row, table.names(key.operation()).size());
  }
  return table;
}

void write_kernel_machine(JsonWriter& writer, const KernelMachine& machine) {
  writer.field("device", machine.device);
  writer.field("processors", machine.processors);
  writer.field("software", machine.software);
  writer.field("cpu", machine.cpu);
  writer.field("isa", machine.isa);
  writer.field("threads", machine.threads);
}

KernelMachine read_kernel_machine(const JsonValue& root) {
  return {root.at("device").string(),   root.at("processors").integer<std::int64_t>(0),
          root.at("software").string(), root.at("cpu").string(),
          root.at("isa").string(),      root.at("threads").integer<std::int64_t>(1)};
}

}  // namespace

std::string to_json(const KernelFile& file) {
  JsonWriter writer(kKernelsSchema, kKernelsVersion);
  writer.field("dflop_version", file.dflop_version);
  write_kernel_machine(writer, file.machine);
  write_kernel_table(writer, file.table);
  return writer.finish();
}

KernelFile parse_kernel_file(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kKernelsSchema, kKernelsVersion);
  root.require_keys({"schema", "version", "dflop_version", "device", "processors", "software", "cpu", "isa",
                     "threads", "variants", "keys"});
  KernelFile result;
  result.dflop_version = root.at("dflop_version").string();
  result.machine = read_kernel_machine(root);
  result.table = read_kernel_table(root);
  return result;
}

std::string kernels_hash(const KernelFile& file) {
  return content_hash(to_json(file));
}

void require_valid(const KernelFile& found, const std::string& file, const KernelMachine& machine,
                   const VariantNames& names) {
  const auto require = [&](std::string_view key, const std::string& expected, const std::string& there) {
    if (expected == there) return;
    refuse_key(
        file, key,
        "measured elsewhere: expected '{}' as here, found '{}'; measure again with 'dflop kernels tune'",
        expected, there);
  };
  require("device", machine.device, found.machine.device);
  require("processors", std::to_string(machine.processors), std::to_string(found.machine.processors));
  require("software", machine.software, found.machine.software);
  require("cpu", machine.cpu, found.machine.cpu);
  require("isa", machine.isa, found.machine.isa);
  require("threads", std::to_string(machine.threads), std::to_string(found.machine.threads));
  for (const KernelOperation operation : all_of<KernelOperation>()) {
    const auto place = static_cast<std::size_t>(operation);
    require(fmt::format("variants.{}", to_string(operation)),
            fmt::format("{}", fmt::join(names[place], ", ")),
            fmt::format("{}", fmt::join(found.table.names()[place], ", ")));
  }
}

namespace {

/// Writes the trials of each variant: the durations of its own calls, and of the calls of the variant in use
/// that were timed alongside.
void write_trials(JsonWriter& writer, const std::vector<KernelTrial>& trials) {
  writer.begin_array("trials");
  for (const KernelTrial& trial : trials) {
    writer.begin_object();
    write_stats(writer, {trial.own, trial.used});
    writer.field("least_ns", trial.least_ns);
    writer.end_object();
  }
  writer.end_array();
}

std::vector<KernelTrial> read_trials(const JsonValue& json, std::size_t variants) {
  std::vector<KernelTrial> trials;
  for (const JsonValue& row : json.elements()) {
    row.require_keys({"count", "mean_ns", "variance_ns2", "least_ns"});
    const std::vector<KernelStats> stats = read_stats(row, 2);
    trials.push_back({stats[0], stats[1], row.at("least_ns").number_in(0, kLongest)});
  }
  if (trials.size() != variants) json.refuse("expected {} trials, found {}", variants, trials.size());
  return trials;
}

void write_state(JsonWriter& writer, KernelKey key, const KernelState& state) {
  writer.begin_object();
  write_key(writer, key);
  writer.field("variant", state.variant);
  writer.field("alive", state.alive);
  writer.field("round", state.round);
  writer.field("ranks", state.ranks);
  writer.field("calls", state.calls);
  writer.field("settled", state.settled);
  writer.field("waits", state.waits);
  writer.field("share_ns", state.share_ns);
  writer.field("settled_ns", state.settled_ns);
  write_stats(writer, {state.since});
  write_trials(writer, state.trials);
  writer.end_object();
}

KernelState read_state(const JsonValue& json, std::size_t variants) {
  json.require_keys(
      with_key_fields({"variant", "alive", "round", "ranks", "calls", "settled", "waits", "share_ns",
                       "settled_ns", "count", "mean_ns", "variance_ns2", "trials"}));
  KernelState state;
  const auto last = static_cast<std::uint32_t>(variants - 1);
  state.variant = json.at("variant").integer<std::uint32_t>(0, last);
  const std::uint64_t most_alive = (std::uint64_t{1} << variants) - 1;
  state.alive = json.at("alive").integer<std::uint32_t>(0, static_cast<std::uint32_t>(most_alive));
  if ((state.alive >> state.variant & 1U) != 0) {
    json.at("alive").refuse("expected no bit of the variant in use, {}, found {}", state.variant,
                            state.alive);
  }
  state.round = json.at("round").integer<std::uint32_t>(0, kKernelRounds);
  state.ranks = json.at("ranks").integer<std::int64_t>(1, kMostCalls);
  state.calls = json.at("calls").integer<std::int64_t>(0, kMostCalls);
  state.settled = json.at("settled").integer<std::int64_t>(0, kMostCalls);
  state.waits = json.at("waits").integer<std::int64_t>(1, kMostCalls);
  state.share_ns = json.at("share_ns").number_in(0, kLongest);
  state.settled_ns = json.at("settled_ns").number_in(0, kLongest);
  state.since = read_stats(json, 1).front();
  state.trials = read_trials(json.at("trials"), variants);
  return state;
}

}  // namespace

std::string to_json(const LearnedKernels& learned) {
  const PlannerState& state = learned.state;
  JsonWriter writer(kStateSchema, kStateVersion);
  write_kernel_machine(writer, learned.machine);
  writer.field("step", state.step);
  writer.field("elapsed_ns", state.elapsed_ns);
  writer.field("spent_ns", state.spent_ns);
  writer.field("switches", state.switches);
  write_kernel_table(writer, state.table);
  writer.begin_array("learned");
  for (std::size_t i = 0; i < state.keys.size(); ++i) {
    write_state(writer, state.keys.keys()[i], state.keys.value(i));
  }
  writer.end_array();
  return writer.finish();
}

LearnedKernels parse_learned_kernels(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kStateSchema, kStateVersion);
  root.require_keys({"schema", "version", "device", "processors", "software", "cpu", "isa", "threads", "step",
                     "elapsed_ns", "spent_ns", "switches", "variants", "keys", "learned"});
  LearnedKernels learned{read_kernel_machine(root), {}};
  PlannerState& state = learned.state;
  state.step = root.at("step").integer<std::int64_t>(0, kMostCalls);
  state.elapsed_ns = root.at("elapsed_ns").number_in(0, kLongest);
  state.spent_ns = root.at("spent_ns").number_in(0, kLongest);
  state.switches = root.at("switches").integer<std::int64_t>(0, kMostCalls);
  state.table = read_kernel_table(root);
  for (const JsonValue& row : root.at("learned").elements()) {
    const KernelKey key = read_own_key(row, state.table, state.keys.find(read_key(row)) != nullptr);
    state.keys.add(key, read_state(row, state.table.names(key.operation()).size()));
  }
  return learned;
}

namespace {

void write_choice(JsonWriter& writer, KernelKey key, const KernelChoice& choice,
                  const std::vector<std::string>& names) {
  writer.begin_object();
  write_key(writer, key);
  writer.field("variant", names.at(choice.variant));
  if (!choice.measured) writer.field("measured", false);
  if (choice.trials > 0) {
    writer.field("tried", names.at(choice.tried));
    writer.field("trials", choice.trials);
    writer.field("first", choice.first);
  }
  writer.end_object();
}

KernelChoice read_choice(const JsonValue& json, const std::vector<std::string>& names) {
  json.require_keys(with_key_fields({"variant"}), {"measured", "tried", "trials", "first"});
  const std::vector<std::string_view> known(names.begin(), names.end());
  KernelChoice choice;
  choice.variant = static_cast<std::uint16_t>(json.at("variant").choice_index(known));
  choice.measured = !json.has("measured") || json.at("measured").boolean();
  if (!json.has("tried") && !json.has("trials") && !json.has("first")) return choice;
  choice.tried = static_cast<std::uint16_t>(json.at("tried").choice_index(known));
  choice.trials = json.at("trials").integer<std::uint16_t>(1);
  choice.first = json.at("first").integer<std::uint8_t>(0, 3);
  return choice;
}

KernelChoices read_choices(const JsonValue& json, const VariantNames& names) {
  json.require_keys({"step", "choices"});
  KernelChoices choices;
  choices.step = static_cast<std::uint64_t>(json.at("step").integer<std::int64_t>(0, kMostCalls));
  for (const JsonValue& row : json.at("choices").elements()) {
    const KernelKey key = read_key(row);
    choices.by_key.add(key, read_choice(row, names[static_cast<std::size_t>(key.operation())]));
  }
  return choices;
}

}  // namespace

std::string with_kernels(std::string json, const RecordedKernels& kernels) {
  JsonWriter writer;
  writer.field("mode", to_string(kernels.mode));
  writer.field("file_hash", kernels.file_hash);
  write_variant_names(writer, kernels.names);
  writer.begin_array("steps");
  for (const KernelChoices& choices : kernels.steps) {
    writer.begin_object();
    writer.field("step", choices.step);
    writer.begin_array("choices");
    for (std::size_t i = 0; i < choices.by_key.size(); ++i) {
      const KernelKey key = choices.by_key.keys()[i];
      write_choice(writer, key, choices.by_key.value(i),
                   kernels.names[static_cast<std::size_t>(key.operation())]);
    }
    writer.end_array();
    writer.end_object();
  }
  writer.end_array();
  std::string member = writer.finish();
  while (member.back() == '\n') member.pop_back();
  const std::size_t end = json.rfind('}');
  const std::size_t last = json.find_last_not_of(" \n", end - 1);
  json.replace(last + 1, end - last - 1,
               fmt::format("{}\n  \"kernels\": {}\n", json[last] == '{' ? "" : ",", member));
  return json;
}

RecordedKernels read_recorded_kernels(const JsonValue& json) {
  json.require_keys({"mode", "file_hash", "variants", "steps"});
  RecordedKernels kernels;
  kernels.mode = json.at("mode").choice<KernelMode>();
  kernels.file_hash = json.at("file_hash").string();
  kernels.names = read_variant_names(json.at("variants"));
  for (const JsonValue& step : json.at("steps").elements()) {
    kernels.steps.push_back(read_choices(step, kernels.names));
  }
  return kernels;
}

}  // namespace dflop
