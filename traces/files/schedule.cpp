#include "traces/files/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <vector>

#include "core/refuse.hpp"
#include "traces/files/samples.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kScheduleSchema = "dflop.schedule";
constexpr int kScheduleVersion = 2;

constexpr int kScheduleMostGbs = 1 << 24;
/// A bound may exceed the optimum that it proves by this relative error.
constexpr double kScheduleRounding = 1e-9;
/// Samples of all iterations have at most this many bytes, because a small file can refer to one large sample
/// again and again.
constexpr std::size_t kMaxSampleBytes = std::size_t{4} << 30;

/// A SampleTable holds the distinct samples, by the line that describes them.
struct SampleTable {
  std::vector<std::string> lines;
  std::unordered_map<std::string, std::size_t> index;

  std::size_t add(const Sample& sample) {
    std::string line = sample_line(sample);
    const auto [place, is_new] = index.try_emplace(line, lines.size());
    if (is_new) lines.push_back(std::move(line));
    return place->second;
  }
};

Assignment read_assignment(const JsonValue& json, int gbs) {
  Assignment assignment;
  assignment.microbatches = json.at("microbatches").integer(1, gbs);
  assignment.dp = json.at("dp").integer(1, gbs / assignment.microbatches);
  const int bins = assignment.microbatches * assignment.dp;
  const JsonValue json_bins = json.at("bins");
  std::vector<bool> filled(static_cast<std::size_t>(bins), false);
  for (const std::int64_t bin : json_bins.integers(0, bins - 1)) {
    assignment.bin.push_back(static_cast<std::int32_t>(bin));
    filled[static_cast<std::size_t>(bin)] = true;
  }
  if (assignment.bin.size() != static_cast<std::size_t>(gbs)) {
    json_bins.refuse_type("a bin for each of gbs = {} samples", gbs);
  }
  const auto empty = std::find(filled.begin(), filled.end(), false);
  if (empty != filled.end()) {
    json_bins.refuse("expected samples in every bin, found none in bin {}", empty - filled.begin());
  }
  return assignment;
}

std::size_t memory_of(const Sample& sample) {
  return sizeof(Sample) + sample.id.size() + sample.encoder_sequences.size() * sizeof(EncoderSequences);
}

ScheduledIteration read_iteration(const JsonValue& json, const std::vector<Sample>& table, int gbs,
                                  std::int64_t version, std::size_t& bytes_left) {
  ScheduledIteration iteration;
  // Handwritten bins lack what a scheduler has proven.
  std::vector<std::string_view> known = {"status", "c_max_s", "bound_s"};
  if (version >= 2) known.insert(known.end(), {"objective", "bound_kind"});
  json.require_keys({"microbatches", "dp", "samples", "bins"}, known);
  if (json.has("objective")) iteration.objective = json.at("objective").choice<Objective>();
  if (json.has("status")) {
    iteration.status = json.at("status").choice({ScheduleStatus::heuristic, ScheduleStatus::optimal,
                                                 ScheduleStatus::node_limit, ScheduleStatus::time_limit,
                                                 ScheduleStatus::fallback});
  }
  if (json.has("c_max_s")) iteration.value = Seconds(json.at("c_max_s").non_negative());
  iteration.bound_kind = BoundKind::none;
  if (json.has("bound_s")) {
    iteration.bound = Seconds(json.at("bound_s").non_negative());
    iteration.bound_kind =
        json.has("bound_kind") ? json.at("bound_kind").choice<BoundKind>() : BoundKind::simple;
    if (iteration.bound > iteration.value * (1 + kScheduleRounding)) {
      json.at("bound_s").refuse_type("at most c_max_s = {}", iteration.value.count());
    }
  }
  iteration.assignment = read_assignment(json, gbs);
  const JsonValue samples = json.at("samples");
  const std::vector<std::int64_t> indices = samples.integers(0, static_cast<std::int64_t>(table.size()) - 1);
  if (indices.size() != static_cast<std::size_t>(gbs)) samples.refuse_type("gbs = {} samples", gbs);
  for (const std::int64_t index : indices) {
    const Sample& sample = table[static_cast<std::size_t>(index)];
    bytes_left -= std::min(bytes_left, memory_of(sample));
    if (bytes_left == 0) samples.refuse("expected samples of at most {} bytes in all", kMaxSampleBytes);
    iteration.samples.push_back(sample);
  }
  check_batch(json, iteration.samples);
  return iteration;
}

constexpr std::int64_t kMaxBin = std::numeric_limits<std::int32_t>::max();

BinsOfIteration bins_of(const JsonValue& json) {
  BinsOfIteration bins;
  for (const std::int64_t bin : json.integers(0, kMaxBin)) bins.bin.push_back(static_cast<std::int32_t>(bin));
  return bins;
}

std::vector<BinsOfIteration> bins_of_json(std::string_view text, const std::string& file) {
  const JsonDocument document(text, file);
  const JsonValue root = document.root();
  const std::vector<JsonValue> elements = root.elements();
  if (!elements.empty() && !elements.front().is_array()) return {bins_of(root)};
  std::vector<BinsOfIteration> iterations;
  for (const JsonValue& element : elements) iterations.push_back(bins_of(element));
  return iterations;
}

std::vector<BinsOfIteration> bins_of_csv(std::string_view text, const std::string& file) {
  CsvReader reader(text, file);
  std::vector<std::string_view> fields;
  if (!reader.next(fields))
    refuse_input(file, "expected a header with the column 'bin', found an empty file");
  const std::size_t width = fields.size();
  const auto column = [&](std::string_view name) {
    return static_cast<std::size_t>(std::find(fields.begin(), fields.end(), name) - fields.begin());
  };
  const std::size_t bin_column = column("bin");
  const std::size_t iteration_column = column("iteration");
  const std::size_t sample_column = column("sample");
  if (bin_column == width) refuse_input(reader.place(), "expected a column 'bin' in the header, found none");
  std::vector<BinsOfIteration> iterations(1);
  while (reader.next(fields, width)) {
    if (iteration_column < width) {
      std::size_t iteration = 0;
      const std::size_t current = iterations.size() - 1;
      const bool begins = !iterations.back().bin.empty();
      if (!parse_whole(fields[iteration_column], iteration) || iteration < current ||
          iteration > current + (begins ? 1 : 0)) {
        refuse_input(reader.place("iteration"), "expected {}, found '{}'",
                     begins ? fmt::format("{} or {}", current, current + 1) : std::to_string(current),
                     fields[iteration_column]);
      }
      if (iteration > current) iterations.emplace_back();
    }
    std::int64_t bin = 0;
    if (!parse_whole(fields[bin_column], bin) || bin < 0 || bin > kMaxBin)
      refuse_input(reader.place("bin"), "expected a bin of at least 0, found '{}'", fields[bin_column]);
    iterations.back().bin.push_back(static_cast<std::int32_t>(bin));
    if (sample_column < width) iterations.back().samples.push_back(unquote(fields[sample_column]));
  }
  return iterations;
}

}  // namespace

std::string to_json(const ScheduleFile& schedule) {
  SampleTable table;
  std::vector<std::vector<std::size_t>> indices(schedule.iterations.size());
  for (std::size_t i = 0; i < schedule.iterations.size(); ++i) {
    for (const Sample& sample : schedule.iterations[i].samples) indices[i].push_back(table.add(sample));
  }
  JsonWriter writer(kScheduleSchema, kScheduleVersion);
  writer.field("scheduler", schedule.scheduler);
  writer.field("model", schedule.model);
  writer.field("gbs", schedule.gbs);
  writer.field("seed", schedule.seed);
  writer.begin_array("samples");
  for (const std::string& line : table.lines) writer.raw("", line);
  writer.end_array();
  writer.begin_array("iterations");
  for (std::size_t i = 0; i < schedule.iterations.size(); ++i) {
    const ScheduledIteration& iteration = schedule.iterations[i];
    writer.begin_object();
    writer.field("objective", to_string(iteration.objective));
    writer.field("status", to_string(iteration.status));
    writer.field("c_max_s", iteration.value.count());
    writer.field("bound_s", iteration.bound.count());
    writer.field("bound_kind", to_string(iteration.bound_kind));
    writer.field("microbatches", iteration.assignment.microbatches);
    writer.field("dp", iteration.assignment.dp);
    writer.row("samples", indices[i]);
    writer.row("bins", iteration.assignment.bin);
    writer.end_object();
  }
  writer.end_array();
  std::string json = writer.finish();
  return schedule.made_by ? with_provenance(std::move(json), *schedule.made_by) : json;
}

ScheduleFile parse_schedule(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kScheduleSchema, kScheduleVersion);
  const auto version = root.at("version").integer<std::int64_t>(1, kScheduleVersion);
  root.require_keys({"schema", "version", "model", "gbs", "samples", "iterations"}, {"scheduler", "seed"});
  ScheduleFile schedule;
  schedule.made_by = read_provenance(root);
  if (root.has("scheduler")) schedule.scheduler = root.at("scheduler").string();
  schedule.model = root.at("model").string();
  schedule.gbs = root.at("gbs").integer(1, kScheduleMostGbs);
  if (root.has("seed")) schedule.seed = root.at("seed").unsigned_integer();
  std::vector<Sample> table;
  for (const JsonValue& sample : root.at("samples").elements()) table.push_back(read_sample(sample));
  if (table.empty()) root.at("samples").refuse_type("at least one sample");
  std::size_t bytes_left = kMaxSampleBytes;
  for (const JsonValue& iteration : root.at("iterations").elements()) {
    schedule.iterations.push_back(read_iteration(iteration, table, schedule.gbs, version, bytes_left));
  }
  if (schedule.iterations.empty()) root.at("iterations").refuse_type("at least one iteration");
  return schedule;
}

std::vector<BinsOfIteration> parse_bins(std::string_view text, const std::string& file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '[';
  std::vector<BinsOfIteration> iterations = is_json ? bins_of_json(text, file) : bins_of_csv(text, file);
  if (iterations.empty() || iterations.front().bin.empty()) refuse_input(file, "expected bins, found none");
  return iterations;
}

}  // namespace dflop
