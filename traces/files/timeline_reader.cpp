#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <map>
#include <unordered_set>

#include "core/error.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMostStages = std::numeric_limits<std::uint16_t>::max();
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int32_t kMostCores = 1 << 20;
constexpr std::int64_t kMostIndex = std::numeric_limits<std::int32_t>::max();
/// 13 days; so low that sums over an iteration's ranks or over iterations stay inside 64 bits.
constexpr std::int64_t kMostNanoseconds = std::int64_t{1} << 50;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
constexpr std::size_t kMostIterations = 4096;

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
std::vector<Enum> read_names(const JsonValue& json) {
  std::vector<Enum> values;
  for (const JsonValue& name : json.elements()) values.push_back(name.choice<Enum>());
  return values;
}

struct FileNames {
  std::vector<Stream> streams;
  std::vector<Op> ops;
};

std::vector<GroupUsage> read_groups(const JsonValue& json, std::int64_t stages, Nanoseconds makespan) {
  json.require_keys({"first_rank", "ranks", "stage", "dp_rank", "busy_ns", "bubble_ns", "wait_ns",
                     "transfer_ns", "parameter_bytes", "gradient_bytes", "optimizer_bytes",
                     "peak_memory_bytes", "peak_time_ns", "peak_activation_bytes", "peak_buffer_bytes"});
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
  const auto read_state = [&](std::string_view key, Bytes ModelState::*member) {
    columns.read(key, 0, kMostBytes, rows, [=](Row& r, std::int64_t v) { r.model_state.*member = {v}; });
  };
  read_state("parameter_bytes", &ModelState::parameters);
  read_state("gradient_bytes", &ModelState::gradients);
  read_state("optimizer_bytes", &ModelState::optimizer);
  read_bytes("peak_memory_bytes", &Row::peak_memory);
  read_time("peak_time_ns", &Row::peak_time);
  read_bytes("peak_activation_bytes", &Row::peak_activations);
  read_bytes("peak_buffer_bytes", &Row::peak_buffers);
  return rows;
}

/// Each rank is in one group at most. Groups come in any order: which ranks are neighbours is a plan's
/// choice.
void check_groups(const JsonValue& json, const std::vector<GroupUsage>& groups) {
  std::map<std::int64_t, std::int64_t> end_of;  // by first rank
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::int64_t first = groups[i].first_rank;
    const std::int64_t end = first + groups[i].ranks;
    const auto after = end_of.lower_bound(first);
    const bool overlaps = (after != end_of.end() && after->first < end) ||
                          (after != end_of.begin() && std::prev(after)->second > first);
    if (overlaps) json.at("first_rank").elements()[i].refuse_type("a rank that is in no group before it");
    if (end > kMostRanks) json.refuse(fmt::format("expected at most {} ranks, found {}", kMostRanks, end));
    end_of.emplace(first, end);
  }
}

/// None, or one for each stage.
std::vector<Stage> read_stage_shapes(const JsonValue& json, std::int64_t stages) {
  json.require_keys({"encoder_layers", "llm_layers", "connector", "embedding", "head", "tp", "dp",
                     "recomputation", "zero1", "sequence_parallel"});
  std::vector<Stage> rows;
  ColumnReader columns(json);
  const auto read_count = [&](std::string_view key, std::int64_t least, int Stage::*member) {
    columns.read(key, least, kMostRanks, rows,
                 [=](Stage& s, std::int64_t v) { s.*member = static_cast<int>(v); });
  };
  read_count("encoder_layers", 0, &Stage::encoder_layers);
  read_count("llm_layers", 0, &Stage::llm_layers);
  read_count("tp", 1, &Stage::tp);
  read_count("dp", 1, &Stage::dp);
  const auto read_each = [&](std::string_view key, const auto& set) {
    const std::vector<JsonValue> values = json.at(key).elements();
    if (values.size() != rows.size()) {
      json.at(key).refuse_type(fmt::format("{} entries, as in the columns beside it", rows.size()));
    }
    for (std::size_t i = 0; i < rows.size(); ++i) set(rows[i], values[i]);
  };
  read_each("connector", [](Stage& s, const JsonValue& v) { s.connector = v.boolean(); });
  read_each("embedding", [](Stage& s, const JsonValue& v) { s.embedding = v.boolean(); });
  read_each("head", [](Stage& s, const JsonValue& v) { s.head = v.boolean(); });
  read_each("zero1", [](Stage& s, const JsonValue& v) { s.zero1 = v.boolean(); });
  read_each("sequence_parallel", [](Stage& s, const JsonValue& v) { s.sequence_parallel = v.boolean(); });
  read_each("recomputation",
            [](Stage& s, const JsonValue& v) { s.recomputation = v.choice<Recomputation>(); });
  if (!rows.empty() && static_cast<std::int64_t>(rows.size()) != stages) {
    json.at("tp").refuse_type(fmt::format("one entry for each of {} stages, or none", stages));
  }
  return rows;
}

std::vector<Work> read_works(const JsonValue& json) {
  json.require_keys({"encoder_sequences", "encoder_tokens", "encoder_attention_pairs", "llm_sequences",
                     "llm_tokens", "llm_attention_pairs"});
  std::vector<Work> rows;
  ColumnReader columns(json);
  const auto read = [&](std::string_view key, Workload Work::*module, std::int64_t Workload::*member) {
    columns.read(key, 0, kMostBytes, rows, [=](Work& w, std::int64_t v) { w.*module.*member = v; });
  };
  read("encoder_sequences", &Work::encoder, &Workload::sequences);
  read("encoder_tokens", &Work::encoder, &Workload::tokens);
  read("encoder_attention_pairs", &Work::encoder, &Workload::attention_pairs);
  read("llm_sequences", &Work::llm, &Workload::sequences);
  read("llm_tokens", &Work::llm, &Workload::tokens);
  read("llm_attention_pairs", &Work::llm, &Workload::attention_pairs);
  return rows;
}

std::vector<Stall> read_stalls(const JsonValue& json, const FileNames& names, std::int64_t stages) {
  json.require_keys({"rank", "op", "stage", "microbatch", "since_ns", "failed", "awaited_rank"});
  std::vector<Stall> rows;
  ColumnReader columns(json);
  columns.read("rank", 0, kMostRanks, rows,
               [](Stall& s, std::int64_t v) { s.rank = static_cast<std::int32_t>(v); });
  columns.read("op", 0, static_cast<std::int64_t>(names.ops.size()) - 1, rows,
               [&](Stall& s, std::int64_t v) { s.op = names.ops[v]; });
  columns.read("stage", 0, stages - 1, rows,
               [](Stall& s, std::int64_t v) { s.stage = static_cast<std::uint16_t>(v); });
  columns.read("microbatch", -1, kMostIndex, rows,
               [](Stall& s, std::int64_t v) { s.microbatch = static_cast<std::int32_t>(v); });
  columns.read("since_ns", 0, kMostNanoseconds, rows,
               [](Stall& s, std::int64_t v) { s.since = Nanoseconds(v); });
  columns.read("failed", 0, 1, rows, [](Stall& s, std::int64_t v) { s.failed = v != 0; });
  columns.read("awaited_rank", -1, kMostRanks, rows,
               [](Stall& s, std::int64_t v) { s.awaited_rank = static_cast<std::int32_t>(v); });
  return rows;
}

std::vector<Span> read_spans(const JsonValue& json, const FileNames& names, std::int64_t stages,
                             std::int64_t works) {
  json.require_keys({"rank", "stream", "op", "stage", "microbatch", "start_ns", "duration_ns", "bytes",
                     "message", "position", "work"});
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
  columns.read("position", -1, kMostIndex, rows,
               [](Span& s, std::int64_t v) { s.position = static_cast<std::int32_t>(v); });
  columns.read("work", -1, works - 1, rows,
               [](Span& s, std::int64_t v) { s.work = static_cast<std::int32_t>(v); });
  return rows;
}

std::vector<MemoryPoint> read_memory(const JsonValue& json) {
  json.require_keys({"rank", "time_ns", "activation_bytes", "buffer_bytes"});
  std::vector<MemoryPoint> rows;
  ColumnReader columns(json);
  columns.read("rank", 0, kMostRanks, rows,
               [](MemoryPoint& m, std::int64_t v) { m.rank = static_cast<std::int32_t>(v); });
  columns.read("time_ns", 0, kMostNanoseconds, rows,
               [](MemoryPoint& m, std::int64_t v) { m.time = Nanoseconds(v); });
  columns.read("activation_bytes", 0, kMostBytes, rows,
               [](MemoryPoint& m, std::int64_t v) { m.activations = {v}; });
  columns.read("buffer_bytes", 0, kMostBytes, rows, [](MemoryPoint& m, std::int64_t v) { m.buffers = {v}; });
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

/// Version 1 knew no cores: there the key is as unknown as any other.
void require_timeline_keys(const JsonValue& json, std::int64_t version) {
  const auto require = [&](std::initializer_list<std::string_view> optional) {
    json.require_keys(
        {"source", "makespan_ns", "stages", "groups", "spans", "memory", "stage_shapes", "works", "stalls"},
        optional);
  };
  if (version == 1) {
    require({});
  } else {
    require({"cores"});
  }
}

Timeline read_timeline(const JsonValue& json, const FileNames& names, std::int64_t version) {
  require_timeline_keys(json, version);
  Timeline timeline;
  timeline.source = json.at("source").string();
  timeline.makespan = Nanoseconds(json.at("makespan_ns").integer<std::int64_t>(0, kMostNanoseconds));
  if (json.has("cores")) timeline.cores = json.at("cores").integer<std::int32_t>(1, kMostCores);
  for (const JsonValue& stage : json.at("stages").elements()) timeline.stages.push_back(stage.string());
  const auto stages = static_cast<std::int64_t>(timeline.stages.size());
  if (stages > kMostStages) json.at("stages").refuse_type(fmt::format("at most {} stages", kMostStages));
  timeline.groups = read_groups(json.at("groups"), stages, timeline.makespan);
  check_groups(json.at("groups"), timeline.groups);
  timeline.stage_shapes = read_stage_shapes(json.at("stage_shapes"), stages);
  timeline.works = read_works(json.at("works"));
  timeline.spans =
      read_spans(json.at("spans"), names, stages, static_cast<std::int64_t>(timeline.works.size()));
  timeline.memory = read_memory(json.at("memory"));
  timeline.stalls = read_stalls(json.at("stalls"), names, stages);
  std::unordered_set<std::int32_t> first_ranks;
  for (const GroupUsage& group : timeline.groups) first_ranks.insert(group.first_rank);
  check_ranks(json.at("spans"), timeline.spans, first_ranks);
  check_ranks(json.at("memory"), timeline.memory, first_ranks);
  check_ranks(json.at("stalls"), timeline.stalls, first_ranks);
  return timeline;
}

}  // namespace

TimelineFile parse_timelines(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kTimelineSchema, kTimelineVersion);
  root.require_keys({"schema", "version", "streams", "ops", "iterations"});
  const FileNames names{read_names<Stream>(root.at("streams")), read_names<Op>(root.at("ops"))};
  const auto version = root.at("version").integer<std::int64_t>(1, kTimelineVersion);
  const JsonValue iterations = root.at("iterations");
  TimelineFile timelines;
  for (const JsonValue& iteration : iterations.elements()) {
    timelines.iterations.push_back(read_timeline(iteration, names, version));
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
