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
constexpr int kKernelsVersion = 1;
constexpr std::size_t kMaxVariants = 32;
constexpr std::int64_t kMaxCalls = std::int64_t{1} << 53;
constexpr std::int64_t kMaxKeyTokens = (std::int64_t{1} << 31) - 1;
constexpr double kLongest = 1e18;  // ns, thirty years; variances are sums of squares

KernelKey read_key(const JsonValue& json) {
  KernelCall call;
  call.operation = json.at("operation").choice<KernelOperation>();
  call.dtype = json.at("dtype").choice<DType>();
  call.inner = json.at("inner").integer<std::int32_t>(0);
  call.outer = json.at("outer").integer<std::int32_t>(0);
  call.causal = json.at("causal").boolean();
  call.tokens = json.at("tokens").integer<std::int64_t>(0, kMaxKeyTokens);
  call.length = json.at("length").integer<std::int64_t>(0, kMaxKeyTokens);
  return KernelKey(call);
}

std::vector<KernelStats> read_stats(const JsonValue& json, std::size_t variants) {
  const std::vector<std::int64_t> counts = json.at("count").integers(0, kMaxCalls);
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
  if (names.empty() || names.size() > kMaxVariants) {
    json.refuse("expected one to {} names, found {}", kMaxVariants, names.size());
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

KernelTable read_kernel_table(const JsonValue& root) {
  KernelTable table(read_variant_names(root.at("variants")));
  for (const JsonValue& row : root.at("keys").elements()) {
    row.require_keys({"operation", "dtype", "inner", "outer", "causal", "tokens", "length", "count",
                      "mean_ns", "variance_ns2"});
    const KernelKey key = read_key(row);
    const std::size_t variants = table.names(key.operation).size();
    if (variants == 0) {
      row.at("operation").refuse("expected an operation of 'variants', found '{}'", to_string(key.operation));
    }
    if (table.entries().contains(key))
      row.refuse("expected each key once: an earlier row has the same buckets");
    table.entry(key) = read_stats(row, variants);
  }
  return table;
}

}  // namespace

std::string to_json(const KernelFile& file) {
  JsonWriter writer(kKernelsSchema, kKernelsVersion);
  writer.field("dflop_version", file.dflop_version);
  writer.field("device", file.machine.device);
  writer.field("processors", file.machine.processors);
  writer.field("software", file.machine.software);
  writer.field("cpu", file.machine.cpu);
  writer.field("isa", file.machine.isa);
  writer.field("threads", file.machine.threads);
  write_variant_names(writer, file.table.names());
  writer.begin_array("keys");
  for (const auto& [key, stats] : file.table.entries()) {
    writer.begin_object();
    writer.field("operation", to_string(key.operation));
    writer.field("dtype", to_string(key.dtype));
    writer.field("inner", key.inner);
    writer.field("outer", key.outer);
    writer.field("causal", key.causal);
    writer.field("tokens", key.tokens);
    writer.field("length", key.length);
    writer.row("count", stats, [](const KernelStats& s) { return s.count; });
    writer.row("mean_ns", stats, [](const KernelStats& s) { return s.mean; });
    writer.row("variance_ns2", stats, [](const KernelStats& s) { return s.variance; });
    writer.end_object();
  }
  writer.end_array();
  return writer.finish();
}

KernelFile parse_kernel_file(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kKernelsSchema, kKernelsVersion);
  root.require_keys({"schema", "version", "dflop_version", "device", "processors", "software", "cpu", "isa",
                     "threads", "variants", "keys"});
  KernelFile result;
  result.dflop_version = root.at("dflop_version").string();
  result.machine = {root.at("device").string(),   root.at("processors").integer<std::int64_t>(0),
                    root.at("software").string(), root.at("cpu").string(),
                    root.at("isa").string(),      root.at("threads").integer<std::int64_t>(1)};
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

}  // namespace dflop
