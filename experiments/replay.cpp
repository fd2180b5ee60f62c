// dflop replay: runs a recorded timeline again, as it was and under what-ifs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "experiments/command.hpp"
#include "experiments/options.hpp"
#include "experiments/presets.hpp"
#include "experiments/replay_runs.hpp"
#include "traces/output_file.hpp"
#include "traces/perfetto.hpp"
#include "traces/plan_file.hpp"
#include "traces/schedule_file.hpp"
#include "traces/text_file.hpp"
#include "traces/timeline_file.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

/// The runs of all iterations that are replayed; runs[k] has the same names for each k.
using Replays = std::vector<std::vector<ReplayRun>>;

/// Another plan and all that its what-if refers to.
struct OtherPlan {
  OtherPlan(const std::string& plan_file, const std::string& schedule_file)
      : plan(parse_plan(read_text_file(plan_file), plan_file)),
        schedule(parse_schedule(read_text_file(schedule_file), schedule_file)),
        target(plan.model, plan.cluster, plan_file) {
    validate(plan, target.model, target.cluster, plan_file);
    validate(schedule, plan, schedule_file);
  }

  Plan plan;
  ScheduleFile schedule;
  Target target;
  PricedParts parts;
};

/// Nothing: all of them.
std::optional<int> read_iteration(const Values& values, std::size_t recorded) {
  const auto text = values["iteration"].as<std::string>();
  if (text == "all") return std::nullopt;
  int iteration = -1;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, iteration);
  if (problem != std::errc() || stop != end || iteration < 0 ||
      static_cast<std::size_t>(iteration) >= recorded) {
    throw Error(ErrorKind::usage,
                fmt::format("option '--iteration': expected a whole number from 0 to {} or 'all', found '{}'",
                            recorded - 1, text));
  }
  return iteration;
}

std::optional<PipelineSchedule> read_schedule_kind(const Values& values) {
  const std::optional<std::string> name = read_text(values, "pipeline-schedule");
  if (!name) return std::nullopt;
  std::vector<std::string_view> names;
  for (int k = 0; k < kPipelineSchedules; ++k) {
    names.push_back(to_string(static_cast<PipelineSchedule>(k)));
    if (names.back() == *name) return static_cast<PipelineSchedule>(k);
  }
  throw Error(ErrorKind::usage,
              fmt::format("option '--pipeline-schedule': expected {}, found '{}'", joined(names), *name));
}

void require_beside(const Values& values, const std::string& option, const std::string& other) {
  if (values.count(option) == 0 || values.count(other) > 0) return;
  throw Error(ErrorKind::usage, fmt::format("option '--{}': expected '--{}' beside it", option, other));
}

std::unique_ptr<OtherPlan> read_other_plan(const Values& values) {
  require_beside(values, "plan", "schedule");
  require_beside(values, "schedule", "plan");
  if (values.count("plan") == 0) return nullptr;
  return std::make_unique<OtherPlan>(values["plan"].as<std::string>(), values["schedule"].as<std::string>());
}

/// In the order in which they are applied.
std::vector<ReplayChange> read_changes(const Values& values, OtherPlan* plan) {
  constexpr double kMostScale = 1e6;
  std::vector<ReplayChange> changes;
  if (plan != nullptr) {
    changes.push_back(other_plan("plan " + values["plan"].as<std::string>(), plan->plan, plan->schedule,
                                 values["schedule"].as<std::string>(), plan->target, plan->parts));
  }
  require_beside(values, "weight-share", "pipeline-schedule");
  const std::optional<PipelineSchedule> schedule = read_schedule_kind(values);
  Reordering reordering;
  if (values.count("weight-share") > 0) reordering.weight_share = read_number(values, "weight-share", 0, 1);
  if (values.count("microbatches") > 0) {
    reordering.microbatches = static_cast<int>(read_integer(values, "microbatches", 1, kMostGbs));
  }
  if (schedule || reordering.microbatches > 0) changes.push_back(other_order(schedule, reordering));
  std::optional<ClusterSpec> cluster;
  if (plan != nullptr) cluster = plan->target.cluster;
  if (const auto name = read_text(values, "cluster")) cluster = find_cluster(*name);
  const double latency = read_number(values, "latency-scale", 1 / kMostScale, kMostScale);
  const double bandwidth = read_number(values, "bandwidth-scale", 1 / kMostScale, kMostScale);
  if (latency != 1 || bandwidth != 1) changes.push_back(other_links(latency, bandwidth, cluster));
  return changes;
}

/// What run `k` comes to over all iterations.
struct RunSummary {
  Seconds mean{0};
  Seconds p95{0};  ///< nearest rank
  double idle_fraction = 0;
  Bytes peak_memory;
  bool memory = true;  ///< known
};

RunSummary summarize(const Replays& replays, std::size_t k) {
  RunSummary summary;
  std::vector<Seconds> times;
  const auto count = static_cast<double>(replays.size());
  for (const std::vector<ReplayRun>& runs : replays) {
    const Timeline& timeline = runs[k].timeline;
    times.push_back(timeline.makespan);
    summary.mean += times.back() / count;
    summary.idle_fraction += idle_fraction(timeline) * times.back().count() / count;
    summary.peak_memory = std::max(summary.peak_memory, peak_memory(timeline));
    summary.memory = summary.memory && runs[k].memory;
  }
  if (summary.mean.count() > 0) summary.idle_fraction /= summary.mean.count();
  std::sort(times.begin(), times.end());
  summary.p95 = times[static_cast<std::size_t>(std::ceil(0.95 * count)) - 1];
  return summary;
}

/// `after` - `before` as a fraction of `before`; nothing where that is zero.
std::optional<double> relative_difference(Seconds before, Seconds after) {
  if (before.count() == 0) return std::nullopt;
  return (after - before) / before;
}

Cell cell(std::optional<double> value) {
  return value ? Cell(*value) : Cell();
}

/// The largest difference of one iteration, as a fraction of what it is compared with.
std::optional<double> largest_difference(const Replays& replays, std::size_t k, std::size_t base) {
  std::optional<double> largest;
  for (const std::vector<ReplayRun>& runs : replays) {
    const auto difference = relative_difference(runs[base].timeline.makespan, runs[k].timeline.makespan);
    if (difference && (!largest || std::abs(*difference) > std::abs(*largest))) largest = difference;
  }
  return largest;
}

/// The replay beside the recording (its error), each what-if beside the replay.
Table run_table(const Replays& replays) {
  const bool several = replays.size() > 1;
  Table table;
  table.columns = {{"run", "run"},
                   {"makespan_s", "makespan s", 6},
                   {"compared_with", "against"},
                   {"difference_s", "difference s", 6},
                   {"difference", "%", 3, 100},
                   {"idle_fraction", "idle %", 1, 100},
                   {"peak_memory_bytes", "peak GiB", 3, 0x1p-30}};
  if (several) {
    table.columns.push_back({"makespan_s_p95", "p95 s", 6});
    table.columns.push_back({"difference_most", "most %", 3, 100});
  }
  for (std::size_t k = 0; k < replays.front().size(); ++k) {
    const RunSummary summary = summarize(replays, k);
    std::vector<Cell> row = {replays.front()[k].name, summary.mean.count(), std::string("-"), Cell{}, Cell{}};
    const std::size_t base = k > 1 ? 1 : 0;
    if (k > 0) {
      const Seconds before = summarize(replays, base).mean;
      row[2] = replays.front()[base].name;
      row[3] = (summary.mean - before).count();
      row[4] = cell(relative_difference(before, summary.mean));
    }
    row.emplace_back(summary.idle_fraction);
    row.push_back(summary.memory ? Cell(summary.peak_memory.count) : Cell());
    if (several) {
      row.emplace_back(summary.p95.count());
      row.push_back(k > 0 ? cell(largest_difference(replays, k, base)) : Cell{});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// How each group of the first replayed iteration spent it, recorded and replayed.
Table group_table(const std::vector<ReplayRun>& runs) {
  Table table;
  table.columns = {{"stage", "stage"}, {"dp_rank", "dp"}, {"first_rank", "rank"}};
  for (const ReplayRun* run : {&runs[0], &runs[1]}) {
    for (const char* share : {"busy", "bubble", "wait"}) {
      table.columns.push_back(
          {fmt::format("{}_{}_s", run->name, share), fmt::format("{} {} s", run->name, share), 6});
    }
  }
  const Timeline& recorded = runs[0].timeline;
  for (std::size_t g = 0; g < recorded.groups.size(); ++g) {
    const GroupUsage& group = recorded.groups[g];
    std::vector<Cell> row = {recorded.stages[group.stage], static_cast<std::int64_t>(group.dp_rank),
                             static_cast<std::int64_t>(group.first_rank)};
    for (const Timeline* timeline : {&recorded, &runs[1].timeline}) {
      const GroupUsage& usage = timeline->groups[g];
      for (const Nanoseconds time : {usage.busy, usage.bubble, usage.wait}) {
        row.emplace_back(Seconds(time).count());
      }
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table price_table(const PricedParts& parts) {
  Table table;
  table.columns = {
      {"parts", "parts"}, {"recorded", "recorded"}, {"by_shape", "by shape"}, {"scaled", "scaled"}};
  const auto add = [&](const std::string& name, const PriceSources& sources) {
    table.rows.push_back({name, sources.exact, sources.by_shape, sources.scaled});
  };
  add("instructions", parts.instructions);
  add("messages", parts.messages);
  add("collectives", parts.collectives);
  return table;
}

void print_result(Format format, const Replays& replays, const OtherPlan* plan) {
  const Table runs = run_table(replays);
  const Table groups = group_table(replays.front());
  switch (format) {
    case Format::table:
      fmt::print("{}", to_text(runs, terminal_width()));
      if (plan != nullptr) {
        fmt::print("\nprices of the other plan:\n\n{}", to_text(price_table(plan->parts), terminal_width()));
      }
      fmt::print("\nfirst replayed iteration, by tp group:\n\n{}", to_text(groups, terminal_width()));
      break;
    case Format::json: {
      nlohmann::ordered_json out = nlohmann::ordered_json::object();
      out["iterations"] = replays.size();
      out["runs"] = nlohmann::ordered_json::parse(to_json(runs, -1));
      if (plan != nullptr)
        out["prices"] = nlohmann::ordered_json::parse(to_json(price_table(plan->parts), -1));
      out["groups"] = nlohmann::ordered_json::parse(to_json(groups, -1));
      fmt::print("{}\n", out.dump(2));
      break;
    }
    case Format::csv:
      fmt::print("{}", to_csv(runs));
  }
}

int run(const Values& values) {
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const auto perfetto = read_output(values, "perfetto");
  const std::unique_ptr<OtherPlan> plan = read_other_plan(values);
  const std::vector<ReplayChange> changes = read_changes(values, plan.get());
  const auto path = values["trace"].as<std::string>();
  const TimelineFile trace = parse_timelines(read_text_file(path), path);
  const std::optional<int> only = read_iteration(values, trace.iterations.size());
  const Detail detail = out || perfetto ? Detail::spans : Detail::usage;
  if (plan && trace.iterations[only.value_or(0)].stage_shapes.empty()) {
    fmt::print(
        stderr,
        "dflop: note: {} says nothing about the shapes of its stages, so that the analytic model alone "
        "prices the compute of another plan\n",
        path);
  }
  Replays replays;
  std::vector<Timeline> last;
  for (int k = only.value_or(0); k <= only.value_or(static_cast<int>(trace.iterations.size()) - 1); ++k) {
    replays.push_back(replay_iteration(trace.iterations[k], path, k, changes, detail));
    if (detail == Detail::spans) last.push_back(replays.back().back().timeline);
  }
  StagedOutputs files;
  if (out) files.add(*out, to_json(TimelineFile{last}));
  if (perfetto) files.add(*perfetto, to_perfetto(last));
  files.commit();
  print_result(format, replays, plan.get());
  if (!plan) return 0;
  std::vector<Timeline> asked_for;
  for (const std::vector<ReplayRun>& runs : replays) asked_for.push_back(runs.back().timeline);
  if (const auto problem = out_of_memory(asked_for, plan->target.cluster)) {
    fmt::print(stderr, "dflop: infeasible: {}\n", *problem);
    return 3;
  }
  return 0;
}

}  // namespace

Command replay_command() {
  Command command{
      "replay",
      "run a recorded timeline again, as it was or otherwise",
      "Rebuilds the program that a timeline recorded, with the durations of its spans, and simulates it. "
      "Prints the\n"
      "recorded makespan, the replayed one with its error, and a row for each what-if, compared with the "
      "replay.\n"
      "What-ifs are applied on top of one another in this order: another plan, another order, other links.\n"
      "Several iterations: means, the 95th percentile, and the largest difference of any.\n"
      "\n"
      "A timeline comes from 'dflop simulate --out'. Time that no span of it covers is lost in the replay and "
      "part\n"
      "of the error. Another plan (--plan, --schedule) is priced by the recording: its parts that were "
      "recorded, then\n"
      "by the mean of recorded parts of the same shape, else by the analytic model scaled by its usual error "
      "on the\n"
      "recording; how many were which is printed. Exit code 3 if memory is not enough for it.",
      "dflop replay --trace timeline.json --pipeline-schedule gpipe",
      command_options(),
      run};
  command.options.add_options()  //
      ("trace", po::value<std::string>()->required()->value_name("FILE"),
       "a timeline with spans (.json, .json.gz)")  //
      ("iteration", po::value<std::string>()->default_value("0")->value_name("K|all"),
       "which of the file's iterations")                                                             //
      ("plan", po::value<std::string>()->value_name("FILE"), "what if: this plan, with --schedule")  //
      ("schedule", po::value<std::string>()->value_name("FILE"),
       "its schedule, of which iteration K is run in place of the recorded iteration K")  //
      ("pipeline-schedule", po::value<std::string>()->value_name("NAME"),
       "what if: the same work in the order of gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v or eager-1f1b")  //
      ("weight-share", po::value<double>()->value_name("X"),
       "part of a whole backward, from 0 to 1, that the zb schedules run as its weight part")  //
      ("microbatches", po::value<std::int64_t>()->value_name("N"),
       "what if: this many, microbatch j doing what the recorded j mod M does")  //
      ("latency-scale", po::value<double>()->default_value(1)->value_name("X"),
       "what if: links with X times the latency")  //
      ("bandwidth-scale", po::value<double>()->default_value(1)->value_name("X"),
       "what if: links with X times the bandwidth")  //
      ("cluster", po::value<std::string>()->value_name("NAME[:NODES]|FILE[:NODES]"),
       "of the recording: tells links inside a node from those between nodes")  //
      ("out", po::value<std::string>()->value_name("FILE"),
       "write the timeline of the last row (.json, .json.gz)")  //
      ("perfetto", po::value<std::string>()->value_name("FILE"),
       "write a trace of the last row for ui.perfetto.dev (.json, .json.gz)");
  add_format_option(command.options);
  return command;
}

}  // namespace dflop
