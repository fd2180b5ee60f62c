// dflop replay: runs a recorded timeline again, as it was and under what-ifs.
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/reports/replay.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/studies/replay_runs.hpp"
#include "traces/files/perfetto.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/output_file.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

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

constexpr double kMostScale = 1e6;

/// Another schedule, an order of the user's, or another number of microbatches; nothing where none is asked
/// for.
std::optional<ReplayChange> read_order_change(const Values& values) {
  const std::optional<std::string> file = read_text(values, "order");
  const std::optional<PipelineSchedule> schedule = read_schedule_kind(values);
  if (file && schedule) {
    throw Error(ErrorKind::usage, "option '--order': takes the place of '--pipeline-schedule', found both");
  }
  if (values.count("weight-share") > 0 && !file && !schedule) {
    throw Error(ErrorKind::usage,
                "option '--weight-share': expected '--pipeline-schedule' or '--order' beside it");
  }
  Reordering reordering;
  if (values.count("weight-share") > 0) reordering.weight_share = read_number(values, "weight-share", 0, 1);
  if (values.count("microbatches") > 0) {
    reordering.microbatches = static_cast<int>(read_integer(values, "microbatches", 1, kMostGbs));
  }
  if (file) return user_order(*file, read_text_file(*file), reordering);
  if (schedule || reordering.microbatches > 0) return other_order(schedule, reordering);
  return std::nullopt;
}

std::optional<ClusterSpec> read_cluster(const Values& values, const OtherPlan* plan) {
  if (const auto name = read_text(values, "cluster")) return find_cluster(*name);
  if (plan != nullptr) return plan->target.cluster;
  return std::nullopt;
}

/// In the order in which they are applied.
std::vector<ReplayChange> read_changes(const Values& values, OtherPlan* plan) {
  std::vector<ReplayChange> changes;
  if (plan != nullptr) {
    changes.push_back(other_plan("plan " + values["plan"].as<std::string>(), plan->plan, plan->schedule,
                                 values["schedule"].as<std::string>(), plan->target, plan->parts));
  }
  if (auto order = read_order_change(values)) changes.push_back(std::move(*order));
  const std::optional<ClusterSpec> cluster = read_cluster(values, plan);
  const double latency = read_number(values, "latency-scale", 1 / kMostScale, kMostScale);
  const double bandwidth = read_number(values, "bandwidth-scale", 1 / kMostScale, kMostScale);
  if (latency != 1 || bandwidth != 1) changes.push_back(other_links(latency, bandwidth, cluster));
  return changes;
}

/// Links that are shared are scaled, too: contention takes the place of the durations that were. What the
/// host adds to a message is part of the latency that rescale_links() finds.
ReplayConditions read_conditions(const Values& values, const OtherPlan* plan) {
  ReplayConditions conditions;
  conditions.what_if = read_what_if(values);
  conditions.name = conditions_name(values);
  conditions.cluster = read_cluster(values, plan);
  if (conditions.what_if.network != NetworkModel::contention) return conditions;
  if (!conditions.cluster) {
    throw Error(ErrorKind::usage,
                "option '--network': 'contention' needs the links of '--cluster' or '--plan', found neither");
  }
  const double latency = read_number(values, "latency-scale", 1 / kMostScale, kMostScale);
  const double bandwidth = read_number(values, "bandwidth-scale", 1 / kMostScale, kMostScale);
  ClusterSpec& cluster = *conditions.cluster;
  for (Link* link : {&cluster.intra_node, &cluster.inter_node}) {
    link->latency *= latency;
    link->bandwidth_bytes_per_s *= bandwidth;
  }
  cluster.message_overhead *= latency;
  cluster.node_ring_bandwidth_bytes_per_s *= bandwidth;
  return conditions;
}

void note_unknown_shapes(const Timeline& recording, const std::string& file) {
  if (!recording.stage_shapes.empty()) return;
  say("dflop: note: {} says nothing about the shapes of its stages, so that the analytic model alone "
      "prices the compute of another plan\n",
      file);
}

int run(const Values& values) {
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const auto perfetto = read_output(values, "perfetto");
  const std::unique_ptr<OtherPlan> plan = read_other_plan(values);
  const std::vector<ReplayChange> changes = read_changes(values, plan.get());
  ReplayConditions conditions = read_conditions(values, plan.get());
  const auto path = values["trace"].as<std::string>();
  const TimelineFile trace = parse_timelines(read_text_file(path), path);
  const std::optional<int> only = read_iteration(values, trace.iterations.size());
  conditions.iterations = trace.iterations.size();
  const Detail detail = out || perfetto ? Detail::spans : Detail::usage;
  if (plan) note_unknown_shapes(trace.iterations[only.value_or(0)], path);
  const int first = only.value_or(0);
  const int end = only ? first + 1 : static_cast<int>(trace.iterations.size());
  Replays replays;
  std::vector<Seconds> repeated;
  std::vector<Timeline> last;
  for (int k = first; k < end && (last.empty() || last.back().stalls.empty()); ++k) {
    ReplayedIteration replayed = replay_iteration(trace.iterations[k], path, k, changes, conditions, detail);
    repeated.insert(repeated.end(), replayed.repeated.begin(), replayed.repeated.end());
    last.push_back(replayed.runs.back().timeline);
    replays.push_back(std::move(replayed.runs));
  }
  StagedOutputs files;
  if (out) files.add(*out, to_json(TimelineFile{last}));
  if (perfetto) files.add(*perfetto, to_perfetto(last));
  files.commit();
  if (!last.back().stalls.empty()) {
    const std::string iteration = fmt::format("iteration {}", first + last.size() - 1);
    return report_stall(format, last.back(), iteration, "tp groups");
  }
  std::optional<Table> distribution;
  if (!repeated.empty()) distribution = distribution_table(std::move(repeated));
  print_replays(format, replays, plan ? &plan->parts : nullptr, distribution);
  if (!plan) return 0;
  if (const auto problem = out_of_memory(last, plan->target.cluster)) {
    say("dflop: infeasible: {}\n", *problem);
    return 3;
  }
  return 0;
}

constexpr const char* kDescription =
    R"(Rebuilds the program that a timeline recorded, with the durations of its spans, and simulates it. Prints the
recorded makespan, the replayed one with its error, and a row for each what-if, compared with the replay.
What-ifs are applied on top of one another in this order: another plan, another order, other links, and
last, in one row, what the run meets: --network, --slow, --slow-link, --jitter, --pause, --fail, --cores.
Several iterations: means, the 95th percentile, and the largest difference of any.

A timeline comes from 'dflop simulate --out'. Time that no span of it covers is lost in the replay and part
of the error. Another plan (--plan, --schedule) is priced by the recording: its parts that were recorded, then
by the mean of recorded parts of the same shape, else by the analytic model scaled by its usual error on the
recording; how many were which is printed. Exit code 3 if memory is not enough for it.

--network contention takes the bytes of the recording and the links of the cluster, latency-bandwidth the
durations that were recorded. Exit code 3, too, if a rank fails; the result then says who stalls. --order is
a file as 'dflop simulate --order-out' writes it.)";

}  // namespace

Command replay_command() {
  Command command{
      .name = "replay",
      .summary = "run a recorded timeline again, as it was or otherwise",
      .description = kDescription,
      .example = "dflop replay --trace timeline.json --pipeline-schedule gpipe",
      .run = run,
  };
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
      ("order", po::value<std::string>()->value_name("FILE"),
       "what if: the same work in the order of this file, in place of --pipeline-schedule")  //
      ("microbatches", po::value<std::int64_t>()->value_name("N"),
       "what if: this many, microbatch j doing what the recorded j mod M does")  //
      ("latency-scale", po::value<double>()->default_value(1)->value_name("X"),
       "what if: links with X times the latency")  //
      ("bandwidth-scale", po::value<double>()->default_value(1)->value_name("X"),
       "what if: links with X times the bandwidth")  //
      ("cluster", po::value<std::string>()->value_name("NAME[:NODES]|FILE[:NODES]"),
       "of the recording: tells links inside a node from those between nodes; its links are shared with "
       "--network contention; default: that of the plan")  //
      ("out", po::value<std::string>()->value_name("FILE"),
       "write the timeline of the last row (.json, .json.gz)")  //
      ("perfetto", po::value<std::string>()->value_name("FILE"),
       "write a trace of the last row for ui.perfetto.dev (.json, .json.gz)");
  add_what_if_options(command.options);
  add_format_option(command.options);
  return command;
}

}  // namespace dflop
