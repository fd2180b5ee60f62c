#include "traces/files/timeline.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include "core/refuse.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kTimelineSchema = "dflop.timeline";
constexpr int kTimelineVersion = 2;
constexpr std::int64_t kMaxStages = std::numeric_limits<std::uint16_t>::max();
constexpr std::int64_t kMaxRanks = 1 << 20;
constexpr std::int32_t kMaxCores = 1 << 20;
constexpr std::int64_t kMaxIndex = std::numeric_limits<std::int32_t>::max();
/// This is 13 days, low enough that sums over an iteration's ranks or over iterations fit in 64 bits.
constexpr std::int64_t kMaxNanoseconds = std::int64_t{1} << 50;
constexpr std::int64_t kTimelineMostBytes = std::int64_t{1} << 60;
constexpr std::size_t kMaxIterations = 4096;

/// A Rows holds the rows of one table while its columns are read; all columns must have as many entries as
/// the first.
template <typename Row>
class Rows {
 public:
  /// Returns the rows for a column of `count` entries. @throws Error (input) if earlier columns have another
  /// number.
  std::vector<Row>& of(const JsonValue& column, std::size_t count) {
    if (!sized_) rows_.resize(count);
    sized_ = true;
    if (count != rows_.size()) {
      column.refuse_type("{} entries, as in the other columns", rows_.size());
    }
    return rows_;
  }

  std::vector<Row> take() { return std::move(rows_); }

 private:
  std::vector<Row> rows_;
  bool sized_ = false;
};

/// A Column is one array of a table in the file, described once for writing and for reading.
template <typename Row>
struct Column {
  std::string_view key;
  std::function<void(JsonWriter&, const std::vector<Row>&)> write;
  std::function<void(const JsonValue&, Rows<Row>&)> read;
};

template <typename Row>
using Columns = std::vector<Column<Row>>;

std::int64_t to_number(std::int64_t number) {
  return number;
}
std::int64_t to_number(Nanoseconds time) {
  return time.count();
}
std::int64_t to_number(Bytes bytes) {
  return bytes.count;
}

template <typename Value>
Value from_number(std::int64_t number) {
  if constexpr (std::is_same_v<Value, Bytes>) {
    return Bytes{number};
  } else {
    return static_cast<Value>(number);
  }
}

template <typename Row, typename Value>
Row row_of(Value Row::*member);  // never defined: only its type is asked for

/// Returns the value at the end of the members: `row.first.second`.
template <auto First, auto... Rest>
auto& member_of(auto& row) {
  if constexpr (sizeof...(Rest) == 0) {
    return row.*First;
  } else {
    return member_of<Rest...>(row.*First);
  }
}

/// Makes a column. `write` converts a row to an entry, `read` reads the entries, and `set` sets a row from
/// one.
template <typename Row, typename Write, typename Read, typename Set>
Column<Row> make_column(std::string_view key, Write write, Read read, Set set) {
  return {key, [=](JsonWriter& writer, const std::vector<Row>& rows) { writer.row(key, rows, write); },
          [=](const JsonValue& column, Rows<Row>& rows) {
            const auto entries = read(column);
            std::vector<Row>& all = rows.of(column, entries.size());
            for (std::size_t i = 0; i < all.size(); ++i) set(all[i], entries[i]);
          }};
}

/// Makes a column of whole numbers in [least, most]. The members lead from a row to its value, such as
/// Span::rank, or Work::encoder and Workload::tokens.
template <auto First, auto... Rest>
auto whole(std::string_view key, std::int64_t least, std::int64_t most) {
  using Row = decltype(row_of(First));
  return make_column<Row>(
      key, [](const Row& row) { return to_number(member_of<First, Rest...>(row)); },
      [=](const JsonValue& column) { return column.integers(least, most); },
      [](Row& row, std::int64_t number) {
        auto& value = member_of<First, Rest...>(row);
        value = from_number<std::remove_reference_t<decltype(value)>>(number);
      });
}

/// Makes a column of indices into the file's list of names for `values`, because older and newer programs may
/// number them differently.
template <auto Member, typename Enum>
auto named(std::string_view key, const std::vector<Enum>& values) {
  using Row = decltype(row_of(Member));
  const auto most = static_cast<std::int64_t>(values.size()) - 1;
  return make_column<Row>(
      key, [](const Row& row) { return static_cast<int>(row.*Member); },
      [=](const JsonValue& column) { return column.integers(0, most); },
      [=](Row& row, std::int64_t index) { row.*Member = values[index]; });
}

/// Makes a column for a member; `write` converts it to an entry, and `read` converts back.
template <auto Member, typename Write, typename Read>
auto each(std::string_view key, Write write, Read read) {
  using Row = decltype(row_of(Member));
  return make_column<Row>(
      key, [=](const Row& row) { return write(row.*Member); },
      [](const JsonValue& column) { return column.elements(); },
      [=](Row& row, const JsonValue& value) { row.*Member = read(value); });
}

/// Makes a column of true and false.
template <auto Member>
auto flag(std::string_view key) {
  return each<Member>(key, std::identity(), [](const JsonValue& value) { return value.boolean(); });
}

/// FileNames holds the values that a file's names stand for, in the file's order.
struct FileNames {
  std::vector<Stream> streams;
  std::vector<Op> ops;
};

/// Limits are used to check the values of one iteration's tables.
struct Limits {
  const FileNames& names;
  std::int64_t stages = 0;
  std::int64_t works = 0;
  Nanoseconds makespan{0};
};

/// `has_begins`: the groups do not begin together; older files do not have this.
Columns<GroupUsage> group_columns(const Limits& of, bool has_begins) {
  using Row = GroupUsage;
  const std::int64_t most_time = of.makespan.count();
  Columns<Row> columns = {
      whole<&Row::first_rank>("first_rank", 0, kMaxRanks),
      whole<&Row::ranks>("ranks", 1, kMaxRanks),
      whole<&Row::stage>("stage", 0, of.stages - 1),
      whole<&Row::dp_rank>("dp_rank", 0, kMaxRanks),
      whole<&Row::busy>("busy_ns", 0, most_time),
      whole<&Row::bubble>("bubble_ns", 0, most_time),
      whole<&Row::wait>("wait_ns", 0, most_time),
      whole<&Row::transfer>("transfer_ns", 0, most_time),
      whole<&Row::model_state, &ModelState::parameters>("parameter_bytes", 0, kTimelineMostBytes),
      whole<&Row::model_state, &ModelState::gradients>("gradient_bytes", 0, kTimelineMostBytes),
      whole<&Row::model_state, &ModelState::optimizer>("optimizer_bytes", 0, kTimelineMostBytes),
      whole<&Row::peak_memory>("peak_memory_bytes", 0, kTimelineMostBytes),
      whole<&Row::peak_time>("peak_time_ns", 0, most_time),
      whole<&Row::peak_activations>("peak_activation_bytes", 0, kTimelineMostBytes),
      whole<&Row::peak_buffers>("peak_buffer_bytes", 0, kTimelineMostBytes)};
  if (has_begins) columns.push_back(whole<&Row::begin>("begin_ns", 0, kMaxNanoseconds));
  return columns;
}

Columns<Span> span_columns(const Limits& of) {
  return {whole<&Span::rank>("rank", 0, kMaxRanks),
          named<&Span::stream>("stream", of.names.streams),
          named<&Span::op>("op", of.names.ops),
          whole<&Span::stage>("stage", 0, of.stages - 1),
          whole<&Span::microbatch>("microbatch", -1, kMaxIndex),
          whole<&Span::start>("start_ns", 0, kMaxNanoseconds),
          whole<&Span::duration>("duration_ns", 0, kMaxNanoseconds),
          whole<&Span::bytes>("bytes", 0, kTimelineMostBytes),
          whole<&Span::message>("message", -1, kMaxIndex),
          whole<&Span::position>("position", -1, kMaxIndex),
          whole<&Span::work>("work", -1, of.works - 1)};
}

Columns<MemoryPoint> memory_columns() {
  return {whole<&MemoryPoint::rank>("rank", 0, kMaxRanks),
          whole<&MemoryPoint::time>("time_ns", 0, kMaxNanoseconds),
          whole<&MemoryPoint::activations>("activation_bytes", 0, kTimelineMostBytes),
          whole<&MemoryPoint::buffers>("buffer_bytes", 0, kTimelineMostBytes)};
}

/// StageExtras says which newer columns of stages are needed. A column is written only if a value is not the
/// default.
struct StageExtras {
  bool states = false;
  bool shares = false;
  bool fronts = false;
  bool trained = false;
  bool copies = false;
};

/// Makes a column of a part of the model: whether the stage trains it.
template <auto Part>
Column<Stage> part_flag(std::string_view key) {
  return make_column<Stage>(
      key, [](const Stage& stage) { return stage.trained.*Part; },
      [](const JsonValue& column) { return column.elements(); },
      [](Stage& stage, const JsonValue& value) { stage.trained.*Part = value.boolean(); });
}

Columns<Stage> stage_columns(const StageExtras& extras) {
  const auto name = [](auto value) { return to_string(value); };
  Columns<Stage> columns = {
      whole<&Stage::encoder_layers>("encoder_layers", 0, kMaxRanks),
      whole<&Stage::llm_layers>("llm_layers", 0, kMaxRanks),
      flag<&Stage::connector>("connector"),
      flag<&Stage::embedding>("embedding"),
      flag<&Stage::head>("head"),
      whole<&Stage::tp>("tp", 1, kMaxRanks),
      whole<&Stage::dp>("dp", 1, kMaxRanks),
      each<&Stage::recomputation>("recomputation", name,
                                  [](const JsonValue& value) { return value.choice<Recomputation>(); }),
      flag<&Stage::zero1>("zero1"),
      flag<&Stage::sequence_parallel>("sequence_parallel")};
  if (extras.states) {
    columns.push_back(each<&Stage::optimizer_states>(
        "optimizer_states", name, [](const JsonValue& value) { return value.choice<OptimizerStates>(); }));
  }
  if (extras.shares) {
    columns.push_back(each<&Stage::share>("share", std::identity(),
                                          [](const JsonValue& value) { return value.number_in(0, 1); }));
  }
  if (extras.fronts) columns.push_back(flag<&Stage::front>("front"));
  if (extras.trained) {
    columns.push_back(part_flag<&TrainedParts::encoder>("trains_encoder"));
    columns.push_back(part_flag<&TrainedParts::connector>("trains_connector"));
    columns.push_back(part_flag<&TrainedParts::llm>("trains_llm"));
    columns.push_back(whole<&Stage::trained, &TrainedParts::lora_rank>("lora_rank", 0, kMaxLoraRank));
  }
  if (extras.copies) columns.push_back(whole<&Stage::copies>("copies", 1, kMaxRanks));
  return columns;
}

/// Returns the columns of works. The newer columns of untrained tokens and of a second encoder are written
/// only if some numbers in them are not zero.
Columns<Work> work_columns(bool has_untrained, bool has_second) {
  Columns<Work> columns = {
      whole<&Work::encoder, &Workload::sequences>("encoder_sequences", 0, kTimelineMostBytes),
      whole<&Work::encoder, &Workload::tokens>("encoder_tokens", 0, kTimelineMostBytes),
      whole<&Work::encoder, &Workload::attention_pairs>("encoder_attention_pairs", 0, kTimelineMostBytes),
      whole<&Work::llm, &Workload::sequences>("llm_sequences", 0, kTimelineMostBytes),
      whole<&Work::llm, &Workload::tokens>("llm_tokens", 0, kTimelineMostBytes),
      whole<&Work::llm, &Workload::attention_pairs>("llm_attention_pairs", 0, kTimelineMostBytes)};
  if (has_untrained) {
    columns.push_back(
        whole<&Work::llm, &Workload::untrained_tokens>("llm_untrained_tokens", 0, kTimelineMostBytes));
  }
  if (has_second) {
    columns.push_back(whole<&Work::encoder, &Workload::second, &SecondWork::sequences>(
        "second_encoder_sequences", 0, kTimelineMostBytes));
    columns.push_back(whole<&Work::encoder, &Workload::second, &SecondWork::tokens>("second_encoder_tokens",
                                                                                    0, kTimelineMostBytes));
    columns.push_back(whole<&Work::encoder, &Workload::second, &SecondWork::attention_pairs>(
        "second_encoder_attention_pairs", 0, kTimelineMostBytes));
  }
  return columns;
}

/// Checks that each token attends at least to itself.
void check_works(const JsonValue& json, const std::vector<Work>& works) {
  for (std::size_t i = 0; i < works.size(); ++i) {
    const auto check = [&](std::string_view key, std::int64_t tokens, std::int64_t pairs) {
      if (pairs < tokens) {
        json.at(key).elements()[i].refuse("expected at least as many attention pairs as tokens, {}, found {}",
                                          tokens, pairs);
      }
    };
    const Workload& encoder = works[i].encoder;
    check("encoder_attention_pairs", encoder.tokens, encoder.attention_pairs);
    check("second_encoder_attention_pairs", encoder.second.tokens, encoder.second.attention_pairs);
    check("llm_attention_pairs", works[i].llm.tokens, works[i].llm.attention_pairs);
  }
}

Columns<RecordedCollective> collective_columns() {
  const auto integers = [](const JsonValue& value) {
    std::vector<std::int32_t> numbers;
    for (const std::int64_t number : value.integers(0, kMaxIndex))
      numbers.push_back(static_cast<std::int32_t>(number));
    return numbers;
  };
  return {each<&RecordedCollective::operation>("operation", std::identity(),
                                               [](const JsonValue& value) { return value.string(); }),
          each<&RecordedCollective::after>("after", std::identity(), integers)};
}

Columns<Stall> stall_columns(const Limits& of) {
  return {whole<&Stall::rank>("rank", 0, kMaxRanks),
          named<&Stall::op>("op", of.names.ops),
          whole<&Stall::stage>("stage", 0, of.stages - 1),
          whole<&Stall::microbatch>("microbatch", -1, kMaxIndex),
          whole<&Stall::since>("since_ns", 0, kMaxNanoseconds),
          whole<&Stall::failed>("failed", 0, 1),
          whole<&Stall::awaited_rank>("awaited_rank", -1, kMaxRanks)};
}

StageExtras extras_of(const std::vector<Stage>& stages) {
  StageExtras extras;
  for (const Stage& stage : stages) {
    extras.states = extras.states || stage.optimizer_states != OptimizerStates::fp32;
    extras.shares = extras.shares || stage.share != 1;
    extras.fronts = extras.fronts || stage.front;
    extras.trained = extras.trained || !stage.trained.all();
    extras.copies = extras.copies || stage.copies > 1;
  }
  return extras;
}

template <typename Row>
void write_table(JsonWriter& writer, std::string_view key, const Columns<Row>& columns,
                 const std::vector<Row>& rows) {
  writer.begin_object(key);
  for (const Column<Row>& column : columns) column.write(writer, rows);
  writer.end_object();
}

template <typename Row>
std::vector<Row> read_table(const JsonValue& json, const Columns<Row>& columns) {
  std::vector<std::string_view> keys;
  for (const Column<Row>& column : columns) keys.push_back(column.key);
  json.require_keys(keys);
  Rows<Row> rows;
  for (const Column<Row>& column : columns) column.read(json.at(column.key), rows);
  return rows.take();
}

void write_timeline(JsonWriter& writer, const Timeline& timeline, const FileNames& names) {
  const Limits none{names};
  writer.begin_object();
  writer.field("source", timeline.source);
  writer.field("makespan_ns", timeline.makespan.count());
  if (timeline.cores > 0) writer.field("cores", timeline.cores);
  if (timeline.hub >= 0) writer.field("hub_rank", timeline.hub);
  if (timeline.shared_gpus > 0) writer.field("shared_gpus", timeline.shared_gpus);
  writer.row("stages", timeline.stages);
  write_table(writer, "groups", group_columns(none, begin_apart(timeline)), timeline.groups);
  write_table(writer, "spans", span_columns(none), timeline.spans);
  write_table(writer, "memory", memory_columns(), timeline.memory);
  write_table(writer, "stage_shapes", stage_columns(extras_of(timeline.stage_shapes)), timeline.stage_shapes);
  const bool has_untrained =
      std::ranges::any_of(timeline.works, [](const Work& work) { return work.llm.untrained_tokens > 0; });
  const bool has_second =
      std::ranges::any_of(timeline.works, [](const Work& work) { return work.encoder.second.tokens > 0; });
  write_table(writer, "works", work_columns(has_untrained, has_second), timeline.works);
  write_table(writer, "stalls", stall_columns(none), timeline.stalls);
  if (!timeline.collectives.empty())
    write_table(writer, "collectives", collective_columns(), timeline.collectives);
  writer.end_object();
}

std::string write_file(const Timeline* timelines, std::size_t count,
                       const std::vector<RecordFinding>& findings = {}) {
  const auto name = [](auto value) { return to_string(value); };
  const FileNames names{all_of<Stream>(), all_of<Op>()};
  JsonWriter writer(kTimelineSchema, kTimelineVersion);
  writer.row("streams", names.streams, name);
  writer.row("ops", names.ops, name);
  if (!findings.empty()) writer.begin_array("findings");
  for (const RecordFinding& finding : findings) {
    writer.begin_object();
    writer.field("kind", finding.kind);
    writer.field("text", finding.text);
    writer.end_object();
  }
  if (!findings.empty()) writer.end_array();
  writer.begin_array("iterations");
  for (std::size_t i = 0; i < count; ++i) write_timeline(writer, timelines[i], names);
  writer.end_array();
  return writer.finish();
}

/// Returns the values for a file's list of names.
template <typename Enum>
std::vector<Enum> read_names(const JsonValue& json) {
  std::vector<Enum> values;
  for (const JsonValue& name : json.elements()) values.push_back(name.choice<Enum>());
  return values;
}

/// Checks that each rank is in at most one group. Groups may be in any order, because the plan chooses which
/// ranks are adjacent.
void check_groups(const JsonValue& json, const std::vector<GroupUsage>& groups) {
  std::map<std::int64_t, std::int64_t> end_of;  // by first rank
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::int64_t first = groups[i].first_rank;
    const std::int64_t end = first + groups[i].ranks;
    const auto after = end_of.lower_bound(first);
    const bool overlaps = (after != end_of.end() && after->first < end) ||
                          (after != end_of.begin() && std::prev(after)->second > first);
    if (overlaps) json.at("first_rank").elements()[i].refuse_type("a rank that is in no earlier group");
    if (end > kMaxRanks) json.refuse("expected at most {} ranks, found {}", kMaxRanks, end);
    end_of.emplace(first, end);
  }
}

/// Reads shapes: none, or one for each stage, with a part of a GPU if GPUs are shared.
std::vector<Stage> read_stage_shapes(const JsonValue& json, std::int64_t stages, bool shares_gpus) {
  std::vector<Stage> rows =
      read_table(json, stage_columns({json.has("optimizer_states"), json.has("share"), json.has("front"),
                                      json.has("trains_encoder"), json.has("copies")}));
  if (!rows.empty() && static_cast<std::int64_t>(rows.size()) != stages) {
    json.at("tp").refuse_type("one entry for each of {} stages, or none", stages);
  }
  if (!rows.empty() && shares_gpus && !json.has("share"))
    json.refuse("expected 'share' with 'shared_gpus', found none");
  for (std::size_t s = 0; s < rows.size(); ++s) {
    const bool is_part = rows[s].share > 0 && rows[s].share < 1;
    if (shares_gpus ? is_part : rows[s].share == 1) continue;
    json.at("share").elements()[s].refuse_type(
        "{}", shares_gpus ? "above 0 and below 1 with 'shared_gpus'" : "1 without 'shared_gpus'");
  }
  return rows;
}

/// Checks that every row's rank is the first of a group.
template <typename Row>
void check_ranks(const JsonValue& json, const std::vector<Row>& rows,
                 const std::unordered_set<std::int32_t>& first_ranks) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (first_ranks.count(rows[i].rank) == 0) {
      json.at("rank").elements()[i].refuse_type("the first rank of a group");
    }
  }
}

Timeline read_timeline(const JsonValue& json, const FileNames& names, std::int64_t version) {
  std::vector<std::string_view> optional;
  if (version > 1)
    optional = {"cores", "hub_rank", "shared_gpus",
                "collectives"};  // in version 1 these are as unknown as any other key
  json.require_keys(
      {"source", "makespan_ns", "stages", "groups", "spans", "memory", "stage_shapes", "works", "stalls"},
      optional);
  Timeline timeline;
  timeline.source = json.at("source").string();
  timeline.makespan = Nanoseconds(json.at("makespan_ns").integer<std::int64_t>(0, kMaxNanoseconds));
  if (json.has("cores")) timeline.cores = json.at("cores").integer<std::int32_t>(1, kMaxCores);
  if (json.has("hub_rank")) timeline.hub = json.at("hub_rank").integer<std::int32_t>(0, kMaxRanks);
  if (json.has("shared_gpus"))
    timeline.shared_gpus = json.at("shared_gpus").integer<std::int32_t>(1, kMaxRanks);
  for (const JsonValue& stage : json.at("stages").elements()) timeline.stages.push_back(stage.string());
  Limits limits{names, static_cast<std::int64_t>(timeline.stages.size()), 0, timeline.makespan};
  if (limits.stages > kMaxStages) json.at("stages").refuse_type("at most {} stages", kMaxStages);
  timeline.groups = read_table(json.at("groups"), group_columns(limits, json.at("groups").has("begin_ns")));
  check_groups(json.at("groups"), timeline.groups);
  timeline.stage_shapes = read_stage_shapes(json.at("stage_shapes"), limits.stages, timeline.shared_gpus > 0);
  const JsonValue works = json.at("works");
  timeline.works =
      read_table(works, work_columns(works.has("llm_untrained_tokens"), works.has("second_encoder_tokens")));
  check_works(works, timeline.works);
  limits.works = static_cast<std::int64_t>(timeline.works.size());
  timeline.spans = read_table(json.at("spans"), span_columns(limits));
  timeline.memory = read_table(json.at("memory"), memory_columns());
  timeline.stalls = read_table(json.at("stalls"), stall_columns(limits));
  if (json.has("collectives"))
    timeline.collectives = read_table(json.at("collectives"), collective_columns());
  std::unordered_set<std::int32_t> first_ranks;
  for (const GroupUsage& group : timeline.groups) first_ranks.insert(group.first_rank);
  check_ranks(json.at("spans"), timeline.spans, first_ranks);
  check_ranks(json.at("memory"), timeline.memory, first_ranks);
  check_ranks(json.at("stalls"), timeline.stalls, first_ranks);
  return timeline;
}

}  // namespace

std::string to_json(const TimelineFile& file) {
  std::string json = write_file(file.iterations.data(), file.iterations.size(), file.findings);
  return file.made_by ? with_provenance(std::move(json), *file.made_by) : json;
}

std::string to_json(const Timeline& timeline) {
  return write_file(&timeline, 1);
}

bool begins_with_warm_up(const TimelineFile& file) {
  return file.iterations.size() > 1 && file.iterations.front().source != "simulated" &&
         (!file.made_by || file.made_by->first_iteration.value_or(0) == 0);
}

TimelineFile parse_timelines(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kTimelineSchema, kTimelineVersion);
  // Recordings once had the kernel variants of their steps under "kernels".
  root.require_keys({"schema", "version", "streams", "ops", "iterations"}, {"kernels", "findings"});
  const FileNames names{read_names<Stream>(root.at("streams")), read_names<Op>(root.at("ops"))};
  const auto version = root.at("version").integer<std::int64_t>(1, kTimelineVersion);
  const JsonValue iterations = root.at("iterations");
  TimelineFile timelines;
  timelines.made_by = read_provenance(root);
  if (root.has("findings")) {
    for (const JsonValue& finding : root.at("findings").elements()) {
      finding.require_keys({"kind", "text"});
      timelines.findings.push_back({finding.at("kind").string(), finding.at("text").string()});
    }
  }
  for (const JsonValue& iteration : iterations.elements()) {
    timelines.iterations.push_back(read_timeline(iteration, names, version));
  }
  if (timelines.iterations.empty() || timelines.iterations.size() > kMaxIterations) {
    iterations.refuse_type("1 to {} iterations", kMaxIterations);
  }
  return timelines;
}

Timeline parse_timeline(std::string_view json, const std::string& file) {
  std::vector<Timeline> iterations = parse_timelines(json, file).iterations;
  if (iterations.size() != 1) {
    refuse_key(file, "iterations", "expected one iteration, found {}", iterations.size());
  }
  return std::move(iterations.front());
}

}  // namespace dflop
