// dflop replay replays a recorded timeline, unchanged and under what-ifs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "costmodel/profiled/profiled.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/conditions.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/evaluation.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/plan_files.hpp"
#include "experiments/studies/what_if/recorded_steps.hpp"
#include "experiments/studies/what_if/replay_runs.hpp"
#include "traces/files/specs.hpp"
#include "traces/files/timeline.hpp"
#include "traces/profiler/check.hpp"
#include "traces/profiler/joined.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Replays are the runs of all replayed iterations. replays[i][k] has the same name for each i.
using Replays = std::vector<std::vector<ReplayRun>>;

/// A RunSummary summarizes a run over all iterations.
struct RunSummary {
  Seconds mean{0};
  Seconds p95{0};  ///< nearest rank
  double idle_fraction = 0;
  std::optional<Bytes> peak_memory = Bytes{};  ///< nothing if it is unknown for an iteration
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
    if (!runs[k].memory) summary.peak_memory.reset();
    if (summary.peak_memory) summary.peak_memory = std::max(*summary.peak_memory, peak_memory(timeline));
  }
  if (summary.mean.count() > 0) summary.idle_fraction /= summary.mean.count();
  std::sort(times.begin(), times.end());
  summary.p95 = nearest_rank(times, 0.95);
  return summary;
}

/// Replaces the times of a summary by the times of all repeated runs that end.
void take_times(RunSummary& summary, std::vector<Seconds> repeated) {
  std::erase(repeated, kStalledMakespan);
  if (repeated.empty()) return;
  std::sort(repeated.begin(), repeated.end());
  summary.mean =
      std::accumulate(repeated.begin(), repeated.end(), Seconds(0)) / static_cast<double>(repeated.size());
  summary.p95 = nearest_rank(repeated, 0.95);
}

/// Returns (`after` - `before`) / `before`; nothing if `before` is zero.
std::optional<double> relative_difference(Seconds before, Seconds after) {
  if (before.count() == 0) return std::nullopt;
  return (after - before) / before;
}

/// Returns the largest relative difference of an iteration between run k and run `base`.
std::optional<double> largest_difference(const Replays& replays, std::size_t k, std::size_t base) {
  std::optional<double> largest;
  for (const std::vector<ReplayRun>& runs : replays) {
    const auto difference = relative_difference(runs[base].timeline.makespan, runs[k].timeline.makespan);
    if (difference && (!largest || std::abs(*difference) > std::abs(*largest))) largest = difference;
  }
  return largest;
}

/// Compares the replay with the recording (the replay's error), and each what-if with the replay. `repeated`
/// has the makespans of the last row if it was repeated.
Table run_table(const Replays& replays, const std::vector<Seconds>& repeated) {
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
    RunSummary summary = summarize(replays, k);
    if (k + 1 == replays.front().size()) take_times(summary, repeated);
    std::vector<Cell> row = {replays.front()[k].name, summary.mean, Cell(), Cell(), Cell()};
    const std::size_t base = k > 1 ? 1 : 0;
    if (k > 0) {
      const Seconds before = summarize(replays, base).mean;
      row[2] = replays.front()[base].name;
      row[3] = summary.mean - before;
      row[4] = relative_difference(before, summary.mean);
    }
    row.insert(row.end(), {summary.idle_fraction, summary.peak_memory});
    if (several)
      row.insert(row.end(), {summary.p95, k > 0 ? largest_difference(replays, k, base) : std::nullopt});
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Shows how each group spent an iteration in the recording and in the unchanged replay.
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
    std::vector<Cell> row = {recorded.stages[group.stage], group.dp_rank, group.first_rank};
    for (const Timeline* timeline : {&recorded, &runs[1].timeline}) {
      const GroupUsage& usage = timeline->groups[g];
      row.insert(row.end(), {usage.busy, usage.bubble, usage.wait});
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

/// Returns the step of the run that an iteration of the file has; nothing if both have the same number.
std::optional<std::int64_t> step_of(const TimelineFile& trace, int iteration) {
  const std::int64_t first = trace.made_by ? trace.made_by->first_iteration.value_or(0) : 0;
  return first > 0 ? std::optional(first + iteration) : std::nullopt;
}

/// Returns the name for the groups of a recording. A recording without a plan has only ranks.
std::string group_word(const TimelineFile& trace) {
  const bool of_plan = !trace.made_by || trace.made_by->plan;
  return of_plan && !has_pieces_alone(trace.iterations.front()) ? "tp group" : "rank";
}

/// Returns the title of the table of groups: "iteration 3, step 6 of the run, by rank, as recorded and ...".
std::string group_title(const TimelineFile& trace, int iteration, const Replays& replays) {
  const auto step = step_of(trace, iteration);
  return fmt::format("iteration {}{}{}, by {}, as recorded and as replayed{}", iteration,
                     step ? fmt::format(", step {} of the run", *step) : "",
                     replays.size() > 1 ? fmt::format(", the first of {} replayed", replays.size()) : "",
                     group_word(trace), replays.front().size() > 2 ? " without what-ifs" : "");
}

/// Prints a row for each run, the groups' use of time in the first two runs of the first iteration, and the
/// source of the prices of another plan, if there is one. `repeated` has the makespans of the last row if it
/// was repeated. `begin` is the first replayed iteration of the file.
void print_replays(Format format, const TimelineFile& trace, int begin, const Replays& replays,
                   const PricedParts* prices, const std::vector<Seconds>& repeated) {
  const Table runs = run_table(replays, repeated);
  const auto distribution = repeated.empty() ? std::nullopt : std::optional(distribution_table(repeated));
  const Table groups = group_table(replays.front());
  Table findings{{{"finding", ""}, {"text", ""}}, {}};
  for (const RecordFinding& finding : trace.findings) findings.rows.push_back({finding.kind, finding.text});
  const auto prices_table = prices != nullptr ? std::optional(price_table(*prices)) : std::nullopt;
  const auto text = [&] {
    return terminal_text(runs) +
           section("makespans of all runs of the last row (above: their mean)", distribution) +
           section("prices of the other plan", prices_table) +
           section(group_title(trace, begin, replays), groups);
  };
  const auto json = [&] {
    nlohmann::ordered_json all;
    all["iterations"] = replays.size();
    all["first_iteration"] = begin;
    all["first_step"] = step_of(trace, begin).value_or(begin);
    all["runs"] = json_of(runs);
    if (distribution) all["distribution"] = json_of(*distribution)[0];
    if (prices_table) all["prices"] = json_of(*prices_table);
    all["groups"] = json_of(groups);
    all["findings"] = json_of(findings);
    return json_text(all);
  };
  print_result(format, text, json, distribution ? *distribution : runs);
}

/// An OtherPlan is the plan of a what-if with all objects that it refers to.
struct OtherPlan : PlanFiles {
  using PlanFiles::PlanFiles;

  PricedParts parts;
};

/// An IterationRange holds the iterations [begin, end).
struct IterationRange {
  int begin = 0;
  int end = 0;
};

/// Reads --iteration: one iteration, all, or all except the first step of a live run.
IterationRange read_range(const Values& values, const TimelineFile& trace) {
  const auto text = values["iteration"].as<std::string>();
  const auto recorded = static_cast<int>(trace.iterations.size());
  if (text == "all") return {0, recorded};
  if (text == "steady") return {begins_with_warm_up(trace) ? 1 : 0, recorded};
  int iteration = -1;
  if (!parse_number(text, iteration) || iteration < 0 || iteration >= recorded) {
    const auto first = step_of(trace, 0);
    const std::string steps =
        first ? fmt::format(" (steps {} to {} of the run)", *first, *first + recorded - 1) : "";
    refuse_value("iteration",
                 fmt::format("a whole number from 0 to {}{}, 'all' or 'steady'", recorded - 1, steps), text);
  }
  return {iteration, iteration + 1};
}

/// Returns the profile of the options. Without one, returns the model that the recording names, if it has not
/// changed since.
ReplayReference read_reference(const Values& values, const TimelineFile& trace) {
  if (std::optional<NamedProfile> profile = read_profile(values)) {
    if (trace.made_by && trace.made_by->model) require_recorded_model(*profile, *trace.made_by->model);
    return {profile->path, std::make_shared<ProfiledCostModel>(std::move(profile->tables))};
  }
  if (!trace.made_by || !trace.made_by->model) return {};
  const Origin& model = *trace.made_by->model;
  try {
    if (model_hash(model.name) != model.hash) return {};
    return {"the model's FLOP", nullptr, find_model(model.name)};
  } catch (const Error&) {  // the file no longer exists
    return {};
  }
}

/// Returns the cluster whose memory limits the replayed run: the cluster of the other plan, else the one of
/// `--cluster`, else the one that the recording names. Nothing if the recording names none or one that has
/// changed, or if stages ran on GPUs of their own.
std::optional<ClusterSpec> memory_cluster(const Values& values, const OtherPlan* plan,
                                          const TimelineFile& trace) {
  if (plan != nullptr) return plan->target.cluster;
  if (const auto name = read_text(values, "cluster")) return find_cluster(*name);
  if (!trace.made_by || !trace.made_by->cluster) return std::nullopt;
  if (trace.made_by->command.find(" --stage-gpu") != std::string::npos) return std::nullopt;
  const Origin& cluster = *trace.made_by->cluster;
  try {
    if (cluster_hash(cluster.name) == cluster.hash) return find_cluster(cluster.name);
  } catch (const Error&) {  // the file no longer exists
  }
  return std::nullopt;
}

/// Returns the orders that have the same work for any plan.
std::vector<std::string_view> replayed_orders() {
  return names_of(orders_where([](const OrderTraits& order) { return !order.spreads_encoder; }));
}

std::optional<OrderKind> read_order_kind(const Values& values) {
  const std::optional<std::string> name = read_text(values, "pipeline-schedule");
  if (!name) return std::nullopt;
  if (const auto known = order_kind_from_string(*name)) return known;
  refuse_value("pipeline-schedule", joined(replayed_orders()), *name);
}

/// Notes the weight shares that an order with split backwards uses, unless the user gave them.
void note_weight_shares(const Values& values, const Timeline& recording, const ReplayReference& reference) {
  const std::optional<OrderKind> kind = read_order_kind(values);
  if (!kind || !splits_backward(*kind) || values.count("weight-share") > 0) return;
  const RecordedProgram recorded = recorded_program(recording);
  const std::vector<double> shares = weight_shares(recorded.program, reference);
  std::string text;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    if (shares[s] > 0) {
      text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", recording.stages[s], shares[s]);
    }
  }
  if (text.empty()) return;
  say("dflop: note: fractions of whole backwards that run as weight parts, by {}: {} (--profile, "
      "--weight-share)\n",
      reference.name, text);
}

/// Notes that an order that depends on memory runs without limits, if memory is unknown.
void note_no_limits(const Values& values, bool knows_memory, const std::optional<ClusterSpec>& cluster) {
  const std::optional<OrderKind> kind = read_order_kind(values);
  if (!kind || !traits(*kind).reads_limits || (knows_memory && cluster)) return;
  say("dflop: note: {} runs without a memory limit: {}\n", to_string(*kind),
      knows_memory ? "the recording does not name its GPUs (--cluster)"
                   : "the memory of microbatches is not recorded (--profile)");
}

void require_beside(const Values& values, const std::string& option, const std::string& other) {
  if (values.count(option) > 0 && values.count(other) == 0)
    refuse_option(option, fmt::format("needs '--{}'", other));
}

std::unique_ptr<OtherPlan> read_other_plan(const Values& values) {
  require_beside(values, "plan", "schedule");
  require_beside(values, "schedule", "plan");
  if (values.count("plan") == 0) return nullptr;
  const auto with = [&](const NamedProfile* profile) {
    return std::make_unique<OtherPlan>(values["plan"].as<std::string>(), values["schedule"].as<std::string>(),
                                       std::function<void(ClusterSpec&)>(), profile);
  };
  const std::optional<NamedProfile> profile = read_profile(values);
  if (!profile) return with(nullptr);
  try {
    return with(&*profile);
  } catch (const Error& error) {  // the recording may have durations that the profile lacks
    std::unique_ptr<OtherPlan> plan = with(nullptr);
    say("dflop: note: the analytic model prices everything that is not in the recording: {}\n", error.what());
    return plan;
  }
}

constexpr double kMaxScale = 1e6;

/// Reads another order (by name or from the user's file) or another number of microbatches; nothing if none
/// is given.
std::optional<ReplayChange> read_order_change(const Values& values, const ReplayReference& reference) {
  const std::optional<std::string> file = read_text(values, "order");
  const std::optional<OrderKind> kind = read_order_kind(values);
  if (file && kind) refuse_option("order", "cannot be combined with '--pipeline-schedule'");
  if (!file && !kind) refuse_given(values, {"weight-share"}, "needs '--pipeline-schedule' or '--order'");
  Reordering reordering;
  if (values.count("weight-share") > 0) reordering.weight_share = read_number(values, "weight-share", 0, 1);
  reordering.microbatches =
      read_optional_integer<int>(values, "microbatches", 1, kMaxGbs).value_or(reordering.microbatches);
  if (file) return user_order(*file, read_text_file(*file), reordering, reference);
  if (kind || reordering.microbatches > 0) return other_order(kind, reordering, reference);
  return std::nullopt;
}

/// Reads the ranks of --as-others; none if it is not given.
std::vector<int> read_evened_ranks(const Values& values) {
  std::vector<int> ranks;
  const std::optional<std::string> text = read_text(values, "as-others");
  if (!text) return ranks;
  for (const std::string_view part : split(*text, ',')) {
    int rank = -1;
    if (!parse_number(part, rank) || rank < 0) refuse_value("as-others", "ranks, such as 3 or 3,5", *text);
    ranks.push_back(rank);
  }
  return ranks;
}

std::optional<ClusterSpec> read_cluster(const Values& values, const OtherPlan* plan) {
  if (const auto name = read_text(values, "cluster")) return find_cluster(*name);
  if (plan != nullptr) return plan->target.cluster;
  return std::nullopt;
}

/// Reads the changes in the order in which they are applied.
std::vector<ReplayChange> read_changes(const Values& values, OtherPlan* plan, RecordedPart part,
                                       const ReplayReference& reference) {
  std::vector<ReplayChange> changes;
  if (plan != nullptr) {
    changes.push_back(other_plan("plan " + values["plan"].as<std::string>(), *plan,
                                 values["schedule"].as<std::string>(), part, plan->parts));
  }
  if (auto order = read_order_change(values, reference)) changes.push_back(std::move(*order));
  if (const auto ranks = read_evened_ranks(values); !ranks.empty()) changes.push_back(as_others(ranks));
  const std::optional<ClusterSpec> cluster = read_cluster(values, plan);
  const double latency = read_number(values, "latency-scale", 1 / kMaxScale, kMaxScale);
  const double bandwidth = read_number(values, "bandwidth-scale", 1 / kMaxScale, kMaxScale);
  if (latency != 1 || bandwidth != 1) changes.push_back(other_links(latency, bandwidth, cluster));
  return changes;
}

/// Reads the conditions of the what-if. With contention, simulated transfers replace the recorded durations,
/// so the links of the cluster are scaled, too. The host's overhead per message is part of the latency that
/// rescale_links() finds. `cluster_of_run` is the cluster of the run, if known.
ReplayConditions read_conditions(const Values& values, const std::optional<ClusterSpec>& cluster_of_run) {
  ReplayConditions conditions;
  conditions.what_if = read_what_if(values, false);
  conditions.name = conditions_name(values);
  conditions.cluster = cluster_of_run;
  if (conditions.what_if.network != NetworkModel::contention) return conditions;
  if (!conditions.cluster) {
    refuse_option(
        "network",
        "'contention' needs the links of a cluster: expected '--cluster', '--plan' or a recording that "
        "names a cluster that has not changed since, found none");
  }
  const double latency = read_number(values, "latency-scale", 1 / kMaxScale, kMaxScale);
  const double bandwidth = read_number(values, "bandwidth-scale", 1 / kMaxScale, kMaxScale);
  ClusterSpec& cluster = *conditions.cluster;
  for (Link* link : {&cluster.intra_node, &cluster.inter_node}) {
    link->latency *= latency;
    link->bandwidth_bytes_per_s *= bandwidth;
  }
  cluster.software.message_overhead *= latency;
  cluster.software.node_ring_bandwidth_bytes_per_s *= bandwidth;
  return conditions;
}

void note_unknown_shapes(const Timeline& recording, const std::string& file) {
  if (!recording.stage_shapes.empty()) return;
  say("dflop: note: {} does not record the shapes of its stages, so only the analytic model prices the "
      "compute of another plan\n",
      file);
}

/// Rejects options about pipelines and models for recordings without these, as of DDP and FSDP, and rejects
/// options for such recordings elsewhere.
void refuse_for_pieces(const Values& values, const Timeline& recording, const std::string& file) {
  const bool has_messages = std::ranges::any_of(
      recording.spans, [](const Span& span) { return is_send(span.op) || is_receive(span.op); });
  if (has_messages) {
    refuse_given(
        values, {"as-others"},
        fmt::format("applies only to ranks that all do the same work and meet in collectives, as with DDP "
                    "and FSDP, but the ranks of {} send each other messages; '--slow' scales the compute "
                    "of a rank or stage",
                    file));
  }
  if (!has_pieces_alone(recording)) return;
  refuse_given(
      values, {"plan", "pipeline-schedule", "order", "microbatches", "weight-share", "profile"},
      fmt::format(
          "{} has ranks that meet in collectives, but no stages and microbatches; use what-ifs that need "
          "neither, such as --as-others, --slow, --slow-link, --jitter, --bandwidth-scale and "
          "--latency-scale",
          file));
}

/// Rejects changes of links if collectives waited for ranks that were not recorded. Their recorded times
/// include these waits.
void refuse_for_missing_ranks(const Values& values, const TimelineFile& trace, const std::string& file) {
  const std::string_view kind = to_string(KinetoFindingKind::missing_rank);
  const auto missing = std::ranges::find(trace.findings, kind, &RecordFinding::kind);
  if (missing == trace.findings.end()) return;
  refuse_given(
      values, {"latency-scale", "bandwidth-scale", "slow-link", "network"},
      fmt::format("part of the time of collectives in {} may be waiting for ranks without a trace, which "
                  "other links do not change ({}); import the traces of all ranks",
                  file, missing->text));
}

/// Rejects changes of links if the recording lacks the sizes of transfers, because the share of bandwidth in
/// their times is then unknown. A few transfers without a size, such as barriers, do no harm.
void refuse_for_unknown_sizes(const Values& values, const TimelineFile& trace, const std::string& file) {
  const bool is_shared = read_text(values, "network") == "contention";
  if (values["latency-scale"].defaulted() && values["bandwidth-scale"].defaulted() && !is_shared) return;
  Nanoseconds unknown{0};
  Nanoseconds all{0};
  for (std::size_t k = 0; k < trace.iterations.size(); ++k) {
    const RecordedProgram recorded = recorded_program(trace.iterations[k], file, static_cast<int>(k));
    const auto add = [&](Bytes bytes, Nanoseconds duration) {
      all += duration;
      if (bytes == Bytes{}) unknown += duration;
    };
    for (std::size_t m = 0; m < recorded.program.messages.size(); ++m)
      add(recorded.program.messages[m].bytes, recorded.costs.message[m]);
    for (std::size_t c = 0; c < recorded.program.collectives.size(); ++c)
      add(recorded.program.collectives[c].bytes, recorded.costs.collective[c]);
  }
  if (Seconds(unknown) <= kMaxReplayError * Seconds(all)) return;
  const std::string why = fmt::format(
      "{} lacks the sizes of messages and collectives that take {:.0f} % of all communication time, so "
      "latency and bandwidth cannot be told apart; record with record_shapes=True or with a PyTorch "
      "whose NCCL kernels have sizes ('dflop import' then shows MB)",
      file, 100 * (Seconds(unknown) / Seconds(all)));
  refuse_given(values, {"latency-scale", "bandwidth-scale"}, why);
  if (is_shared) refuse_option("network", why);
}

/// Notes how much the unchanged replay of an imported run differs from the recording, and what that means for
/// other orders.
void note_own_error(const Values& values, const TimelineFile& trace, const std::string& file,
                    const Replays& replays) {
  constexpr double kNotable = 0.003;
  const Timeline& recording = trace.iterations.front();
  const auto mean = [&](std::size_t k) { return summarize(replays, k).mean; };
  const double error = relative_difference(mean(0), mean(1)).value_or(0);
  if (recording.source != "recorded" || has_pieces_alone(recording) || std::abs(error) < kNotable) return;
  std::string text =
      fmt::format("{}: the unchanged replay differs from the recording by {:+.1f} %", file, 100 * error);
  const bool has_receives =
      std::ranges::any_of(recording.spans, [](const Span& span) { return is_receive(span.op); });
  if (error < 0 && has_receives) text += kLateReceives;
  const bool is_reordered = values.count("pipeline-schedule") + values.count("order") > 0;
  const std::size_t last = replays.front().size() - 1;
  const double difference = relative_difference(mean(1), mean(last)).value_or(0);
  if (is_reordered && std::abs(difference) <= std::abs(error)) {
    text += fmt::format("; '{}' differs from it by less than this error, so it may be slower or faster",
                        replays.front()[last].name);
  } else if (is_reordered && has_receives) {
    text += "; another order may lose several times as much by late receives";
  }
  say("dflop: note: {}\n", text);
}

/// Returns whether options other than --network change links.
bool changes_links(const Values& values) {
  return !values["latency-scale"].defaulted() || !values["bandwidth-scale"].defaulted() ||
         values.count("slow-link") > 0;
}

/// Notes that links inside tensor-parallel groups are not changed, if there are such groups.
void note_tensor_sums(const Values& values, const Timeline& timeline) {
  const auto has_sums = [](const GroupUsage& group) { return group.ranks > 1; };
  if (!changes_links(values) || std::ranges::none_of(timeline.groups, has_sums)) return;
  say("dflop: note: communication inside a tensor-parallel group is part of its recorded compute and does "
      "not change; 'dflop simulate' also prices it on other links\n");
}

/// Returns how many messages are sent while an earlier message between the same two ranks is still in
/// transit.
std::size_t overlapping_messages(const Timeline& timeline) {
  std::map<std::int32_t, std::int32_t> receiver;  // by message
  std::vector<const Span*> sends;
  for (const Span& span : timeline.spans) {
    if (is_receive(span.op)) receiver[span.message] = span.rank;
    if (is_send(span.op)) sends.push_back(&span);
  }
  std::ranges::stable_sort(sends, {}, &Span::start);
  std::map<std::pair<std::int32_t, std::int32_t>, Nanoseconds> busy_until;
  std::size_t count = 0;
  for (const Span* send : sends) {
    Nanoseconds& until = busy_until[{send->rank, receiver[send->message]}];
    if (send->start < until) ++count;
    until = std::max(until, send->start + send->duration);
  }
  return count;
}

/// Notes that changed links make messages between the same two ranks overlap, each at the full rate.
void note_overlaps(const Values& values, const TimelineFile& trace, int begin,
                   const std::vector<Timeline>& last) {
  if (!changes_links(values) || read_text(values, "network") == "contention") return;
  std::size_t recorded = 0;
  std::size_t now = 0;
  for (std::size_t k = 0; k < last.size(); ++k) {
    recorded += overlapping_messages(trace.iterations[begin + k]);
    now += overlapping_messages(last[k]);
  }
  if (now <= recorded) return;
  say("dflop: note: {} messages overlap with another message between the same two ranks, {} in the "
      "recording: each is timed as if it were the only one, so a real run may take longer ('--network "
      "contention' shares links)\n",
      now, recorded);
}

/// Notes the findings in the recording that make what-ifs doubtful.
void note_findings(const TimelineFile& trace, const std::string& file) {
  for (const RecordFinding& finding : trace.findings) {
    say("dflop: note: {} has a finding that may make what-ifs wrong: {}: {}\n", file, finding.kind,
        finding.text);
  }
}

/// Returns which part of its run a recording covers. Step N of an imported run ran iteration N modulo the
/// number of iterations of its schedule; other runs have one iteration for each step.
RecordedPart part_of_run(const TimelineFile& trace) {
  return {trace.made_by ? trace.made_by->first_iteration.value_or(0) : 0,
          trace.iterations.front().source == "recorded"};
}

int run_replay(const Values& values) {
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const auto perfetto = read_output(values, "perfetto");
  const std::unique_ptr<OtherPlan> plan = read_other_plan(values);
  // This reports wrong options before a long file is read.
  read_what_if(values, false);
  read_changes(values, plan.get(), {}, {});
  const auto path = values["trace"].as<std::string>();
  const TimelineFile trace = parse_timelines(read_text_file(path), path);
  refuse_for_pieces(values, trace.iterations.front(), path);
  refuse_for_missing_ranks(values, trace, path);
  if (trace.iterations.front().source == "recorded") refuse_for_unknown_sizes(values, trace, path);
  const std::optional<ClusterSpec> cluster = memory_cluster(values, plan.get(), trace);
  const std::optional<ClusterSpec> named = read_cluster(values, plan.get());
  ReplayConditions conditions = read_conditions(values, named ? named : cluster);
  conditions.reference = read_reference(values, trace);
  if (cluster) conditions.reference.usable_memory = cluster->gpu.usable_memory();
  const std::vector<ReplayChange> changes =
      read_changes(values, plan.get(), part_of_run(trace), conditions.reference);
  if (plan) {
    const auto schedule = values["schedule"].as<std::string>();
    require_together(values, values["plan"].as<std::string>(), plan->plan_made_by, schedule,
                     plan->schedule.made_by);
    std::optional<Provenance> recorded = trace.made_by;
    if (recorded) recorded->cluster.reset();  // the plan may be for another cluster
    require_together(values, schedule, plan->schedule.made_by, path, recorded);
  }
  const IterationRange range = read_range(values, trace);
  conditions.iterations = trace.iterations.size();
  const Detail detail = out || perfetto || changes_links(values) ? Detail::spans : Detail::usage;
  if (plan) note_unknown_shapes(trace.iterations[range.begin], path);
  Replays replays;
  std::vector<Seconds> repeated;
  std::vector<Timeline> last;
  ReplaySequence sequence;
  const bool in_sequence = std::ranges::any_of(trace.iterations, begin_apart);
  for (int k = in_sequence ? 0 : range.begin; k < range.end && (last.empty() || last.back().stalls.empty());
       ++k) {
    ReplayedIteration replayed = replay_iteration({trace.iterations[k], path, k}, changes, conditions, detail,
                                                  in_sequence ? &sequence : nullptr);
    if (k < range.begin) {  // only the state of the ranks after it matters
      if (plan) plan->parts = {};
      continue;
    }
    repeated.insert(repeated.end(), replayed.repeated.begin(), replayed.repeated.end());
    last.push_back(replayed.runs.back().timeline);
    replays.push_back(std::move(replayed.runs));
  }
  StagedOutputs files;
  if (out) {
    const TimelineFile made{.iterations = last, .made_by = made_here(values), .findings = trace.findings};
    files.add(*out, to_json(made));
  }
  if (perfetto) files.add(*perfetto, to_perfetto(last));
  files.commit();
  if (!last.back().stalls.empty()) {
    const std::string iteration = fmt::format("iteration {}", range.begin + last.size() - 1);
    return report_stall(format, last.back(), iteration, group_word(trace) + "s");
  }
  note_nothing_failed(values, last);
  say_made_by(path, trace.made_by);
  note_findings(trace, path);
  note_own_error(values, trace, path, replays);
  for (const ReplayChange& change : changes) {
    if (change.note) change.note();
  }
  note_tensor_sums(values, last.front());
  note_overlaps(values, trace, range.begin, last);
  note_weight_shares(values, trace.iterations[range.begin], conditions.reference);
  const bool knows_memory =
      std::ranges::all_of(replays, [](const std::vector<ReplayRun>& runs) { return runs.back().memory; });
  note_no_limits(values, knows_memory, cluster);
  if (range.begin > 0 && values["iteration"].defaulted()) {
    say("dflop: note: the first step of the run is a warm-up and is left out (--iteration all)\n");
  }
  print_replays(format, trace, range.begin, replays, plan ? &plan->parts : nullptr, repeated);
  if (!cluster || !knows_memory) return 0;
  if (const auto problem = out_of_memory(last, *cluster)) {
    say("dflop: infeasible: {}\n", *problem);
    return 3;
  }
  return 0;
}

}  // namespace

Command replay_command() {
  Command command{
      .name = "replay",
      .task = Task::explain,
      .summary = "replay a recorded timeline, unchanged or under what-ifs",
      .description =
          R"(Rebuilds the program of a recorded timeline, with the durations of its spans, and simulates it.
Prints the recorded makespan, the replayed makespan with its error, and a row for each what-if, compared with
the replay. What-ifs are applied on top of one another in this order: another plan, another order, ranks like
the others, other links, and last, in one row, the conditions of the run: --network, --slow, --slow-link,
--jitter, --pause, --fail, --cores. With several iterations it prints means, the 95th percentile and the
largest difference of any iteration. Time that no span covers is lost in the replay and is part of the error.

Another plan (--plan, --schedule) is priced from the recording, and parts that the recording lacks by the
analytic model or --profile (docs/replay.md). Iteration K of its schedule replaces iteration K of the run.
With --microbatches N, microbatch j does the work of recorded microbatch j mod M. --profile also gives weight
parts, and memory if the recording has none. --cluster, by default the plan's, separates links inside a node
from links between nodes; memory and, with --network contention, links also come from the cluster that the
recording names.

Exit code 3 if the last row needs more memory than a GPU of that cluster has, or if a rank fails; the result
then lists the stalled ranks. If the memory is not known, eager-1f1b has no limit, and a note says so.
--network contention uses the recorded bytes and the cluster's links, latency-bandwidth the recorded durations.
--slow-link and --bandwidth-scale do not change communication between the GPUs of a rank.)",
      .example = "dflop replay --trace timeline.json --bandwidth-scale 0.5",
      .run = run_replay,
  };
  add_trace_option(command.options, text("FILE").required());
  command.options.add({
      {"iteration", text("K|all|steady", "steady").common(),
       "iterations to replay, by their position in the file, counted from 0; steady: all but the first step "
       "of a live run"},
  });
  add_plan_option(command.options, text("FILE"));
  add_schedule_option(command.options, text("FILE"));
  command.options.add(
      OptionGroup::what_if,
      {
          {"pipeline-schedule", text("NAME").common(),
           "the same work in the order of " + listed(replayed_orders())},
          {"weight-share", number("X"),
           "fraction of a whole backward, from 0 to 1, that the zb schedules run as the weight part; "
           "default: the fraction of each stage, from --profile or, if the recording names its model, from "
           "FLOP"},
          {"as-others", text("RANK[,RANK...]").common(),
           "for DDP and FSDP: give these ranks the other ranks' median compute time between collectives: "
           "neither slower nor delayed by late data"},
          {"latency-scale", number("X", 1).common(),
           "links with X times the latency; a note says if sizes or noise hide the latency, which then "
           "counts as 0"},
          {"bandwidth-scale", number("X", 1).common(),
           "multiply the bandwidth of links by X; changes only messages, reshards and reductions between ranks"},
      });
  add_profile_file_option(command.options);
  add_order_file_option(command.options);
  add_microbatches_option(command.options);
  add_cluster_option(command.options, text("NAME[:NODES]|FILE[:NODES]"));
  command.options.add(OptionGroup::output, {{"out", text("FILE").common(),
                                             "write the timeline of the last row (.json, .json.gz)"}});
  add_perfetto_option(command.options);
  add_what_if_options(command.options);
  add_mixed_option(command.options);
  return command;
}

}  // namespace dflop
