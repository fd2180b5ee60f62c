#include "traces/timeline_file.hpp"

#include <fmt/format.h>

#include <limits>
#include <unordered_set>

#include "core/error.hpp"
#include "traces/json_writer.hpp"
#include "traces/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kSchema = "dflop.timeline";
constexpr int kVersion = 1;

constexpr std::int64_t kMostStages = std::numeric_limits<std::uint16_t>::max();
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostIndex = std::numeric_limits<std::int32_t>::max();
/// 13 days; so low that sums over an iteration's ranks or over iterations stay inside 64 bits.
constexpr std::int64_t kMostNanoseconds = std::int64_t{1} << 50;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr std::size_t kMostIterations = 4096;

/// All values of an enumeration whose values count up from 0.
template <typename Enum>
std::vector<Enum> all_values(int count) {
  std::vector<Enum> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<Enum>(i));
  return values;
}

void write_groups(JsonWriter& writer, const std::vector<GroupUsage>& groups) {
  writer.begin_object("groups");
  writer.row("first_rank", groups, [](const GroupUsage& g) { return g.first_rank; });
  writer.row("ranks", groups, [](const GroupUsage& g) { return g.ranks; });
  writer.row("stage", groups, [](const GroupUsage& g) { return g.stage; });
  writer.row("dp_rank", groups, [](const GroupUsage& g) { return g.dp_rank; });
  writer.row("busy_ns", groups, [](const GroupUsage& g) { return g.busy.count(); });
  writer.row("bubble_ns", groups, [](const GroupUsage& g) { return g.bubble.count(); });
  writer.row("wait_ns", groups, [](const GroupUsage& g) { return g.wait.count(); });
  writer.row("transfer_ns", groups, [](const GroupUsage& g) { return g.transfer.count(); });
  writer.row("peak_memory_bytes", groups, [](const GroupUsage& g) { return g.peak_memory.count; });
  writer.row("model_state_bytes", groups, [](const GroupUsage& g) { return g.model_state.count; });
  writer.end_object();
}

void write_spans(JsonWriter& writer, const std::vector<Span>& spans) {
  writer.begin_object("spans");
  writer.row("rank", spans, [](const Span& s) { return s.rank; });
  writer.row("stream", spans, [](const Span& s) { return static_cast<int>(s.stream); });
  writer.row("op", spans, [](const Span& s) { return static_cast<int>(s.op); });
  writer.row("stage", spans, [](const Span& s) { return s.stage; });
  writer.row("microbatch", spans, [](const Span& s) { return s.microbatch; });
  writer.row("start_ns", spans, [](const Span& s) { return s.start.count(); });
  writer.row("duration_ns", spans, [](const Span& s) { return s.duration.count(); });
  writer.row("bytes", spans, [](const Span& s) { return s.bytes.count; });
  writer.row("message", spans, [](const Span& s) { return s.message; });
  writer.end_object();
}

void write_memory(JsonWriter& writer, const std::vector<MemoryPoint>& memory) {
  writer.begin_object("memory");
  writer.row("rank", memory, [](const MemoryPoint& m) { return m.rank; });
  writer.row("time_ns", memory, [](const MemoryPoint& m) { return m.time.count(); });
  writer.row("bytes", memory, [](const MemoryPoint& m) { return m.bytes.count; });
  writer.end_object();
}

void write_timeline(JsonWriter& writer, const Timeline& timeline) {
  writer.begin_object();
  writer.field("source", timeline.source);
  writer.field("makespan_ns", timeline.makespan.count());
  writer.row("stages", timeline.stages);
  write_groups(writer, timeline.groups);
  write_spans(writer, timeline.spans);
  write_memory(writer, timeline.memory);
  writer.end_object();
}

std::string write_file(const Timeline* timelines, std::size_t count) {
  const auto name = [](auto value) { return to_string(value); };
  JsonWriter writer;
  writer.field("schema", kSchema);
  writer.field("version", kVersion);
  writer.row("streams", all_values<Stream>(kStreams), name);
  writer.row("ops", all_values<Op>(kOps), name);
  writer.begin_array("iterations");
  for (std::size_t i = 0; i < count; ++i) write_timeline(writer, timelines[i]);
  writer.end_array();
  return writer.finish();
}

/// The columns of one table; all have as many rows as the first that is read.
class ColumnReader {
 public:
  explicit ColumnReader(const JsonValue& json) : json_(json) {}

  /// Reads a column of whole numbers in [least, most] and gives each to `set(row, number)`.
  template <typename Row, typename Set>
  void read(std::string_view key, std::int64_t least, std::int64_t most, std::vector<Row>& rows, Set set) {
    const JsonValue column = json_.at(key);
    const std::vector<std::int64_t> numbers = column.integers(least, most);
    if (first_) rows.resize(numbers.size());
    first_ = false;
    if (numbers.size() != rows.size()) {
      column.refuse_type(fmt::format("{} entries, as in the columns beside it", rows.size()));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) set(rows[i], numbers[i]);
  }

 private:
  const JsonValue& json_;
  bool first_ = true;
};

/// Names in the file to our values: older and newer programs may number them differently.
template <typename Enum>
std::vector<Enum> read_names(const JsonValue& json, int count) {
  const std::vector<Enum> known = all_values<Enum>(count);
  std::vector<std::string_view> names;
  for (const Enum value : known) names.push_back(to_string(value));
  std::vector<Enum> values;
  for (const JsonValue& name : json.elements()) values.push_back(known[name.choice_index(names)]);
  return values;
}

struct FileNames {
  std::vector<Stream> streams;
  std::vector<Op> ops;
};

std::vector<GroupUsage> read_groups(const JsonValue& json, std::int64_t stages, Nanoseconds makespan) {
  json.require_keys({"first_rank", "ranks", "stage", "dp_rank", "busy_ns", "bubble_ns", "wait_ns",
                     "transfer_ns", "peak_memory_bytes", "model_state_bytes"});
  using Row = GroupUsage;
  std::vector<Row> rows;
  ColumnReader columns(json);
  const auto read_time = [&](std::string_view key, Nanoseconds Row::*member) {
    columns.read(key, 0, makespan.count(), rows, [=](Row& r, std::int64_t v) { r.*member = Nanoseconds(v); });
  };
  const auto read_bytes = [&](std::string_view key, Bytes Row::*member) {
    columns.read(key, 0, kMostBytes, rows, [=](Row& r, std::int64_t v) { r.*member = {v}; });
  };
  const auto read_index = [&](std::string_view key, std::int64_t least, std::int64_t most,
                              std::int32_t Row::*member) {
    columns.read(key, least, most, rows,
                 [=](Row& r, std::int64_t v) { r.*member = static_cast<std::int32_t>(v); });
  };
  read_index("first_rank", 0, kMostRanks, &Row::first_rank);
  read_index("ranks", 1, kMostRanks, &Row::ranks);
  read_index("stage", 0, stages - 1, &Row::stage);
  read_index("dp_rank", 0, kMostRanks, &Row::dp_rank);
  read_time("busy_ns", &Row::busy);
  read_time("bubble_ns", &Row::bubble);
  read_time("wait_ns", &Row::wait);
  read_time("transfer_ns", &Row::transfer);
  read_bytes("peak_memory_bytes", &Row::peak_memory);
  read_bytes("model_state_bytes", &Row::model_state);
  return rows;
}

/// Groups come in rank order, each rank in at most one.
void check_groups(const JsonValue& json, const std::vector<GroupUsage>& groups) {
  std::int64_t next_rank = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].first_rank < next_rank) {
      json.at("first_rank")
          .elements()[i]
          .refuse_type(fmt::format("at least {}, the rank after the group before it", next_rank));
    }
    next_rank = std::int64_t{groups[i].first_rank} + groups[i].ranks;
  }
  if (next_rank > kMostRanks)
    json.refuse(fmt::format("expected at most {} ranks, found {}", kMostRanks, next_rank));
}

std::vector<Span> read_spans(const JsonValue& json, const FileNames& names, std::int64_t stages) {
  json.require_keys(
      {"rank", "stream", "op", "stage", "microbatch", "start_ns", "duration_ns", "bytes", "message"});
  std::vector<Span> rows;
  ColumnReader columns(json);
  const auto last = [](const auto& list) { return static_cast<std::int64_t>(list.size()) - 1; };
  columns.read("rank", 0, kMostRanks, rows,
               [](Span& s, std::int64_t v) { s.rank = static_cast<std::int32_t>(v); });
  columns.read("stream", 0, last(names.streams), rows,
               [&](Span& s, std::int64_t v) { s.stream = names.streams[v]; });
  columns.read("op", 0, last(names.ops), rows, [&](Span& s, std::int64_t v) { s.op = names.ops[v]; });
  columns.read("stage", 0, stages - 1, rows,
               [](Span& s, std::int64_t v) { s.stage = static_cast<std::uint16_t>(v); });
  columns.read("microbatch", -1, kMostIndex, rows,
               [](Span& s, std::int64_t v) { s.microbatch = static_cast<std::int32_t>(v); });
  columns.read("start_ns", 0, kMostNanoseconds, rows,
               [](Span& s, std::int64_t v) { s.start = Nanoseconds(v); });
  columns.read("duration_ns", 0, kMostNanoseconds, rows,
               [](Span& s, std::int64_t v) { s.duration = Nanoseconds(v); });
  columns.read("bytes", 0, kMostBytes, rows, [](Span& s, std::int64_t v) { s.bytes = {v}; });
  columns.read("message", -1, kMostIndex, rows,
               [](Span& s, std::int64_t v) { s.message = static_cast<std::int32_t>(v); });
  return rows;
}

std::vector<MemoryPoint> read_memory(const JsonValue& json) {
  json.require_keys({"rank", "time_ns", "bytes"});
  std::vector<MemoryPoint> rows;
  ColumnReader columns(json);
  columns.read("rank", 0, kMostRanks, rows,
               [](MemoryPoint& m, std::int64_t v) { m.rank = static_cast<std::int32_t>(v); });
  columns.read("time_ns", 0, kMostNanoseconds, rows,
               [](MemoryPoint& m, std::int64_t v) { m.time = Nanoseconds(v); });
  columns.read("bytes", 0, kMostBytes, rows, [](MemoryPoint& m, std::int64_t v) { m.bytes = {v}; });
  return rows;
}

/// Every row's rank must be the first of a group.
template <typename Row>
void check_ranks(const JsonValue& json, const std::vector<Row>& rows,
                 const std::unordered_set<std::int32_t>& first_ranks) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (first_ranks.count(rows[i].rank) == 0) {
      json.at("rank").elements()[i].refuse_type("the first rank of a group");
    }
  }
}

Timeline read_timeline(const JsonValue& json, const FileNames& names) {
  json.require_keys({"source", "makespan_ns", "stages", "groups", "spans", "memory"});
  Timeline timeline;
  timeline.source = json.at("source").string();
  timeline.makespan = Nanoseconds(json.at("makespan_ns").integer<std::int64_t>(0, kMostNanoseconds));
  for (const JsonValue& stage : json.at("stages").elements()) timeline.stages.push_back(stage.string());
  const auto stages = static_cast<std::int64_t>(timeline.stages.size());
  if (stages > kMostStages) json.at("stages").refuse_type(fmt::format("at most {} stages", kMostStages));
  timeline.groups = read_groups(json.at("groups"), stages, timeline.makespan);
  check_groups(json.at("groups"), timeline.groups);
  timeline.spans = read_spans(json.at("spans"), names, stages);
  timeline.memory = read_memory(json.at("memory"));
  std::unordered_set<std::int32_t> first_ranks;
  for (const GroupUsage& group : timeline.groups) first_ranks.insert(group.first_rank);
  check_ranks(json.at("spans"), timeline.spans, first_ranks);
  check_ranks(json.at("memory"), timeline.memory, first_ranks);
  return timeline;
}

}  // namespace

std::string to_json(const TimelineFile& file) {
  return write_file(file.iterations.data(), file.iterations.size());
}

std::string to_json(const Timeline& timeline) {
  return write_file(&timeline, 1);
}

TimelineFile parse_timelines(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kSchema, kVersion);
  root.require_keys({"schema", "version", "streams", "ops", "iterations"});
  const FileNames names{read_names<Stream>(root.at("streams"), kStreams),
                        read_names<Op>(root.at("ops"), kOps)};
  const JsonValue iterations = root.at("iterations");
  TimelineFile timelines;
  for (const JsonValue& iteration : iterations.elements()) {
    timelines.iterations.push_back(read_timeline(iteration, names));
  }
  if (timelines.iterations.empty() || timelines.iterations.size() > kMostIterations) {
    iterations.refuse_type(fmt::format("1 to {} iterations", kMostIterations));
  }
  return timelines;
}

Timeline parse_timeline(std::string_view json, const std::string& file) {
  std::vector<Timeline> iterations = parse_timelines(json, file).iterations;
  if (iterations.size() != 1) {
    throw Error(ErrorKind::input, fmt::format("expected one iteration, found {}", iterations.size()),
                fmt::format("{}: key 'iterations'", file));
  }
  return std::move(iterations.front());
}

}  // namespace dflop
