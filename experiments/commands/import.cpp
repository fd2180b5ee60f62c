// dflop import shows PyTorch-profiler traces as tables, findings and a timeline.
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/refuse.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/plan_files.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/studies/what_if/recorded_steps.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"
#include "traces/files/timeline.hpp"
#include "traces/profiler/check.hpp"
#include "traces/profiler/joined.hpp"
#include "traces/profiler/kineto.hpp"
#include "traces/profiler/pipeline.hpp"
#include "traces/profiler/ranks.hpp"
#include "traces/profiler/stragglers.hpp"
#include "traces/profiler/usage.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMaxExamples = 3;
constexpr std::size_t kMaxAlone = 8;  ///< max stragglers that are replayed one by one

/// Returns `part` / `whole`; nothing if `whole` is 0.
Cell fraction(Nanoseconds part, Nanoseconds whole) {
  if (whole.count() == 0) return {};
  return Seconds(part) / Seconds(whole);
}

Table step_table(const std::vector<KinetoTrace>& traces) {
  Table table;
  table.columns = {{"rank", "rank"},
                   {"step", "step"},
                   {"host_s", "host ms", 3, 1e3},
                   {"duration_s", "device ms", 3, 1e3},
                   {"busy_s", "busy ms", 3, 1e3},
                   {"compute_s", "compute ms", 3, 1e3},
                   {"communication_s", "comm ms", 3, 1e3},
                   {"exposed_communication_s", "exposed ms", 3, 1e3},
                   {"copy_s", "memcpy ms", 3, 1e3},
                   {"idle_s", "idle ms", 3, 1e3},
                   {"forward_fraction", "forward %", 1, 100},
                   {"backward_fraction", "backward %", 1, 100},
                   {"optimizer_fraction", "optimizer %", 1, 100},
                   {"other_fraction", "other %", 1, 100},
                   {"activities", "activities"}};
  for (const KinetoTrace& trace : traces) {
    for (const KinetoStepUsage& usage : step_usage(trace)) {
      const std::int32_t step = usage.window.step;
      std::vector<Cell> row = {trace.rank,          step < 0 ? Cell{} : Cell{trace.steps[step].number},
                               usage.host,          usage.window.end - usage.window.begin,
                               usage.busy,          usage.compute,
                               usage.communication, usage.exposed,
                               usage.copy,          usage.idle};
      for (const Nanoseconds phase : usage.phases) row.push_back(fraction(phase, usage.compute));
      row.push_back(usage.activities);
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

Table stream_table(const std::vector<KinetoTrace>& traces) {
  Table table;
  table.columns = {{"rank", "rank"},
                   {"device", "device"},
                   {"stream", "stream"},
                   {"kernels", "kernels"},
                   {"compute_s", "compute ms", 3, 1e3},
                   {"communication_s", "comm ms", 3, 1e3},
                   {"copies", "copies"},
                   {"copy_s", "memcpy ms", 3, 1e3}};
  for (const KinetoTrace& trace : traces) {
    for (const KinetoStreamUsage& usage : stream_usage(trace)) {
      table.rows.push_back({trace.rank, usage.device, usage.stream, usage.kernels, usage.compute,
                            usage.communication, usage.copies, usage.copy});
    }
  }
  return table;
}

/// Returns bytes per second; nothing if either value is unknown.
Cell bandwidth(const std::optional<Bytes>& bytes, Nanoseconds time) {
  if (!bytes || bytes->count == 0 || time.count() == 0) return {};
  return static_cast<double>(bytes->count) / Seconds(time).count();
}

Table group_table(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks) {
  Table table;
  table.columns = {{"operation", "operation"},
                   {"rank", "rank"},
                   {"group", "group"},
                   {"group_size", "size"},
                   {"count", "count"},
                   {"bytes", "MB", 3, 1e-6},
                   {"time_s", "time ms", 3, 1e3},
                   {"matched", "matched"},
                   {"transfer_s", "transfer ms", 3, 1e3},
                   {"wait_s", "wait ms", 3, 1e3},
                   {"bandwidth_bytes_per_s", "GB/s", 2, 1e-9},
                   {"bandwidth_with_wait_bytes_per_s", "GB/s with wait", 2, 1e-9}};
  for (std::size_t t = 0; t < traces.size(); ++t) {
    for (const KinetoGroupUsage& usage : group_usage(traces[t], ranks.shares[t])) {
      const bool matched = usage.matched > 0;
      table.rows.push_back(
          {usage.name, traces[t].rank, usage.group.empty() ? Cell{} : Cell{usage.group},
           usage.group_size == 0 ? Cell{} : Cell{usage.group_size}, usage.count, usage.bytes, usage.time,
           usage.matched, matched ? Cell{usage.transfer} : Cell{}, matched ? Cell{usage.wait} : Cell{},
           bandwidth(usage.matched_bytes, usage.transfer), bandwidth(usage.bytes, usage.time)});
    }
  }
  return table;
}

Table clock_table(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks) {
  Table table;
  table.columns = {{"file", "file"},
                   {"rank", "rank"},
                   {"clock_offset_s", "clock us", 3, 1e6},
                   {"clock_spread_s", "spread us", 3, 1e6},
                   {"matches", "matches"}};
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const KinetoClock& clock = ranks.clocks[t];
    const bool known = t == 0 || clock.matches > 0;
    table.rows.push_back({traces[t].file, traces[t].rank, known ? Cell{clock.offset} : Cell{},
                          known ? Cell{clock.spread} : Cell{}, clock.matches});
  }
  return table;
}

/// Counts findings by kind.
Table finding_table(const std::vector<KinetoFinding>& findings) {
  Table table;
  table.columns = {{"finding", "finding"}, {"count", "count"}, {"meaning", "meaning"}};
  for (int k = 0; k < kKinetoFindingKinds; ++k) {
    const auto kind = static_cast<KinetoFindingKind>(k);
    const auto count = std::count_if(findings.begin(), findings.end(),
                                     [&](const KinetoFinding& f) { return f.kind == kind; });
    if (count == 0) continue;
    table.rows.push_back({to_string(kind), count, explanation(kind)});
  }
  return table;
}

std::vector<const KinetoFinding*> examples(const std::vector<KinetoFinding>& findings) {
  std::vector<const KinetoFinding*> first;
  std::size_t taken[kKinetoFindingKinds] = {};
  for (const KinetoFinding& finding : findings) {
    if (taken[static_cast<std::size_t>(finding.kind)]++ < kMaxExamples) first.push_back(&finding);
  }
  std::stable_sort(first.begin(), first.end(),
                   [](const KinetoFinding* a, const KinetoFinding* b) { return a->kind < b->kind; });
  return first;
}

Table example_table(const std::vector<const KinetoFinding*>& examples) {
  Table table{{{"finding", ""}, {"event", ""}, {"place", ""}, {"text", ""}}, {}};
  for (const KinetoFinding* f : examples)
    table.rows.push_back({to_string(f->kind), f->event, f->place, f->text});
  return table;
}

/// Savings are fractions of the steps' time that would be saved if stragglers computed as fast as the other
/// ranks.
struct Savings {
  KinetoStragglers stragglers;
  std::vector<int> ranks;                    ///< of the stragglers
  std::vector<std::optional<double>> alone;  ///< per straggler; nothing if unknown
  std::optional<double> together;
};

/// Replays the steps with all stragglers mended. If there are few, it drops each one that contributes almost
/// nothing to the savings.
void drop_innocent(Savings& savings, const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                   const PipelineImport& joined, const std::vector<PipelineStep>& steps) {
  constexpr double kLittle = 0.005;
  const auto numbers_of = [&](const std::vector<std::size_t>& kept) {
    std::vector<int> numbers;
    for (const std::size_t trace : kept) numbers.push_back(*traces[trace].rank);
    return numbers;
  };
  std::vector<std::size_t> kept;
  for (const KinetoStraggler& straggler : savings.stragglers.ranks) kept.push_back(straggler.trace);
  savings.together = saved_as_others(joined, numbers_of(kept));
  const bool has_few = savings.together && kept.size() <= kMaxAlone;
  for (std::size_t k = has_few ? kept.size() : 0; k-- > 0 && kept.size() > 1;) {
    std::vector<std::size_t> fewer = kept;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(k));
    const std::optional<double> saved = saved_as_others(joined, numbers_of(fewer));
    if (!saved || *saved < *savings.together - kLittle) continue;
    kept = std::move(fewer);
    savings.together = saved;
  }
  if (kept.size() < savings.stragglers.ranks.size())
    savings.stragglers = stragglers_of(traces, ranks, steps, savings.stragglers, kept);
  for (const KinetoStraggler& straggler : savings.stragglers.ranks)
    savings.ranks.push_back(*traces[straggler.trace].rank);
}

/// Finds stragglers by the time in which other ranks wait without computing or, if that names none, by all
/// time in which others wait. If steps can be replayed, mending the stragglers must save at least
/// kMinStraggling, because a wait may cost nothing. Waits hidden by compute count only if steps can be
/// replayed. The savings per straggler are computed only for few stragglers. If ranks wait for each other
/// inside ranges of compute, savings are unknown.
Savings find_savings(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                     const PipelineImport& pipeline) {
  const auto is_joint = [](const PipelineStep& step) { return !step.joint.empty(); };
  const std::vector<PipelineStep>& steps = pipeline.steps;
  const PipelineImport none;
  const PipelineImport& joined = std::ranges::any_of(steps, is_joint) ? none : pipeline;
  for (const bool hidden : {false, true}) {
    Savings savings;
    savings.stragglers = find_stragglers(traces, ranks, steps, hidden);
    if (savings.stragglers.ranks.empty()) continue;
    drop_innocent(savings, traces, ranks, joined, steps);
    if (savings.together ? *savings.together < kMinStraggling : hidden) continue;
    const std::vector<int>& all = savings.ranks;
    savings.alone.resize(all.size());
    for (std::size_t k = 0; k < all.size() && all.size() <= kMaxAlone; ++k)
      savings.alone[k] = all.size() == 1 ? savings.together : saved_as_others(joined, {all[k]});
    return savings;
  }
  return {};
}

/// Adds to the findings of stragglers how much mending them saves.
void tell_savings(const Savings& savings, const std::vector<KinetoTrace>& traces,
                  std::vector<KinetoFinding>& findings) {
  const std::vector<int>& all = savings.ranks;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!savings.alone[k]) continue;
    const std::string& file = traces[savings.stragglers.ranks[k].trace].file;
    const auto own = std::ranges::find_if(findings, [&](const KinetoFinding& finding) {
      return finding.kind == KinetoFindingKind::straggler && finding.place == file;
    });
    own->text +=
        fmt::format("; 'replay --as-others {}' saves {:.1f} % of a step", all[k], 100 * *savings.alone[k]);
    if (all.size() > 1 && savings.together)
      own->text += fmt::format(", '--as-others {}' {:.1f} %", fmt::join(all, ","), 100 * *savings.together);
  }
}

Table straggler_table(const Savings& savings, const std::vector<KinetoTrace>& traces) {
  Table table;
  table.columns = {{"rank", ""},
                   {"compute_ratio", ""},
                   {"idle_fraction", ""},
                   {"waiting_ranks", ""},
                   {"others_wait_fraction", ""},
                   {"saved_fraction", ""},
                   {"saved_fraction_all", ""}};
  const KinetoStragglers& all = savings.stragglers;
  for (std::size_t k = 0; k < all.ranks.size(); ++k) {
    const KinetoStraggler& straggler = all.ranks[k];
    table.rows.push_back({traces[straggler.trace].rank, straggler.compute_ratio, straggler.idle, all.others,
                          all.others_wait_more, savings.alone[k], savings.together});
  }
  return table;
}

Table pipeline_table(const PipelineImport& pipeline, const std::vector<Nanoseconds>& replayed) {
  Table table;
  table.columns = {{"step", "step"},
                   {"duration_s", "ms", 3, 1e3},
                   {"replayed_s", "replayed ms", 3, 1e3},
                   {"ranks", "ranks"},
                   {"stages", "stages"},
                   {"messages", "messages"},
                   {"known_arrivals", "known arrivals"},
                   {"typical_transfer_s", "typical transfer ms", 3, 1e3},
                   {"longest_transfer_s", "longest ms", 3, 1e3}};
  for (std::size_t i = 0; i < pipeline.steps.size(); ++i) {
    const PipelineStep& step = pipeline.steps[i];
    const bool known = step.messages > 0;
    table.rows.push_back({step.number, step.timeline.makespan, replayed[i], step.timeline.groups.size(),
                          step.timeline.stages.size(), step.messages, step.known,
                          known ? Cell{step.typical} : Cell{}, known ? Cell{step.longest} : Cell{}});
  }
  return table;
}

void print_trace(Format format, const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                 const Table& replayable, const std::vector<KinetoFinding>& findings,
                 const Table& stragglers) {
  const Table clocks = clock_table(traces, ranks);
  const Table steps = step_table(traces);
  const Table streams = stream_table(traces);
  const Table groups = group_table(traces, ranks);
  const Table kinds = finding_table(findings);
  const std::vector<const KinetoFinding*> first = examples(findings);

  const auto text = [&] {
    std::string all = terminal_text(clocks);
    if (!steps.rows.empty()) all += section("by step", steps) + section("by stream", streams);
    if (!replayable.rows.empty()) all += section("steps that can be replayed", replayable);
    if (!groups.rows.empty()) all += section("communication", groups);
    all += findings.empty() ? "\nno findings\n" : section("findings", kinds) + "\n";
    for (const KinetoFinding* f : first)
      all += fmt::format("{}: {}: {}\n", to_string(f->kind), f->place, f->text);
    return all;
  };
  const auto json = [&] {
    nlohmann::ordered_json all;
    all["traces"] = json_of(clocks);
    all["steps"] = json_of(steps);
    all["streams"] = json_of(streams);
    all["pipeline"] = json_of(replayable);
    all["communication"] = json_of(groups);
    all["findings"] = json_of(kinds);
    all["examples"] = json_of(example_table(first));
    all["stragglers"] = json_of(stragglers);
    return json_text(all);
  };
  print_result(format, text, json, steps);
}

/// Gives files without a rank the lowest free ranks. Rejects duplicate ranks and files from runs of different
/// sizes.
void settle_ranks(std::vector<KinetoTrace>& traces) {
  const auto sized =
      std::ranges::find_if(traces, [](const KinetoTrace& t) { return t.world_size.has_value(); });
  for (const KinetoTrace& trace : traces) {
    if (!trace.world_size || trace.world_size == sized->world_size) continue;
    refuse_key(trace.file, "distributedInfo.world_size", "expected {} as in {}, found {}", *sized->world_size,
               sized->file, *trace.world_size);
  }
  std::set<std::int32_t> taken;
  for (const KinetoTrace& trace : traces) {
    if (!trace.rank || taken.insert(*trace.rank).second) continue;
    refuse_input(trace.file, "expected one file per rank, found rank {} again", *trace.rank);
  }
  std::int32_t next = 0;
  for (KinetoTrace& trace : traces) {
    if (trace.rank) continue;
    while (taken.count(next) > 0) ++next;
    trace.rank = next++;
  }
}

/// Returns the files that match a shell pattern, sorted.
std::vector<std::string> files_matching(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return files;
}

/// Returns the .json and .json.gz files of a folder, sorted.
std::vector<std::string> traces_of_folder(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().string();
    if (name.ends_with(".json") || name.ends_with(".json.gz")) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Returns the files that the names stand for. A folder stands for its traces, and a pattern that is not a
/// file for the files that it matches.
std::vector<std::string> trace_files(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    std::error_code ignored;  // an inaccessible file is reported when it is opened
    std::vector<std::string> found = {name};
    if (std::filesystem::is_directory(name, ignored)) {
      found = traces_of_folder(name);
      if (found.empty()) refuse_input(name, "expected traces (.json, .json.gz) in the folder, found none");
    } else if (!std::filesystem::exists(name, ignored) && name.find_first_of("*?[") != std::string::npos) {
      found = files_matching(name);
      if (found.empty()) refuse_input(name, "expected files that match the pattern, found none");
    }
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

/// Reads the kinds of findings that end the command with exit code 3.
std::vector<KinetoFindingKind> read_fail_on(const Values& values) {
  const auto text = read_text(values, "fail-on");
  if (!text) return {};
  std::vector<std::string_view> names = {"any"};
  std::vector<KinetoFindingKind> all;
  for (int k = 0; k < kKinetoFindingKinds; ++k) {
    all.push_back(static_cast<KinetoFindingKind>(k));
    names.push_back(to_string(all.back()));
  }
  std::vector<KinetoFindingKind> kinds;
  for (const std::string_view name : split(*text, ',')) {
    require_one_of("fail-on", names, std::string(name));
    if (name == "any") return all;
    kinds.push_back(*std::ranges::find(all, name, [](KinetoFindingKind kind) { return to_string(kind); }));
  }
  return kinds;
}

/// Reports which of the kinds were found.
void tell_fatal(const std::vector<KinetoFinding>& findings, const std::vector<KinetoFindingKind>& kinds) {
  for (const KinetoFindingKind kind : kinds) {
    const auto count = std::ranges::count(findings, kind, &KinetoFinding::kind);
    if (count > 0) say("dflop: --fail-on: {} of kind {}\n", count, to_string(kind));
  }
}

std::optional<std::string> read_timeline_output(const Values& values,
                                                const std::vector<std::string>& inputs) {
  auto out = read_output(values, "out");
  for (const std::string& input : inputs) {
    std::error_code ignored;  // a file that does not exist yet is not the same file
    if (!out || (*out != input && !std::filesystem::equivalent(*out, input, ignored))) continue;
    refuse_option("out", fmt::format("'{}' is also a file of '--kineto'", *out));
  }
  return out;
}

/// A RecordedPlan is the plan that the user gives for the recorded run, with its schedule if given.
struct RecordedPlan {
  explicit RecordedPlan(const Values& values) : RecordedPlan(values["plan"].as<std::string>()) {
    const auto name = read_text(values, "schedule");
    if (!name) return;
    schedule = parse_schedule(read_text_file(*name), *name);
    validate(*schedule, plan, target.model, *name);
  }

  std::string file;
  Plan plan;
  Target target;
  std::optional<ScheduleFile> schedule = {};

 private:
  explicit RecordedPlan(const std::string& name)
      : file(name),
        plan(parse_plan(read_text_file(name), name)),
        target(plan.model, plan.cluster, name, {}, nullptr, Use::shape) {
    validate(plan, target.model, target.cluster, name);
  }
};

std::unique_ptr<RecordedPlan> read_plan(const Values& values) {
  if (values.count("plan") > 0) return std::make_unique<RecordedPlan>(values);
  refuse_given(values, {"schedule"}, "needs '--plan'");
  return nullptr;
}

Provenance made_by(const Values& values, const RecordedPlan* plan) {
  if (plan == nullptr) return made_here(values);
  Provenance made = made_here(values, plan->target);
  made.plan = origin_of(plan->plan, plan->file);
  if (!plan->schedule) return made;
  made.gbs = plan->schedule->gbs;
  made.seed = plan->schedule->seed;
  if (plan->schedule->made_by) made.data = plan->schedule->made_by->data;
  return made;
}

/// Reads the steps of a pipeline that can be replayed, with the help of the plan if one is given; other steps
/// become findings. `replayed` receives the time of each step in an unchanged replay.
PipelineImport read_pipeline(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                             const RecordedPlan* plan, std::vector<Nanoseconds>& replayed) {
  PipelineImport pipeline = import_pipeline(traces, ranks);
  const std::string& file = traces.front().file;
  if (plan != nullptr) {
    apply_plan(pipeline, file, plan->plan, plan->file, plan->schedule ? &*plan->schedule : nullptr,
               plan->target);
  }
  replayed = keep_what_replays(pipeline, file);
  keep_consecutive(pipeline, replayed, file);
  return pipeline;
}

/// Reads the steps of ranks that meet in collectives, if these steps can be replayed.
PipelineImport read_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                           std::vector<Nanoseconds>& replayed) {
  if (why_not_joined(traces, ranks)) return {};
  PipelineImport joined = import_joined(traces, ranks);
  const std::string& file = traces.front().file;
  replayed = keep_what_replays(joined, file);
  keep_consecutive(joined, replayed, file);
  return joined;
}

/// Returns the steps that can be replayed. If there are none, returns timelines that show what ran when but
/// cannot be replayed.
std::vector<Timeline> timelines_of(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                                   const PipelineImport& pipeline) {
  if (pipeline.steps.empty()) {
    std::vector<Timeline> shown = to_timelines(traces, ranks);
    std::string why = "no step has ranges for everything that its ranks do";
    if (!has_pipeline_ranges(traces)) {
      why = why_not_joined(traces, ranks)
                .value_or(
                    "no step takes about as long in an unchanged replay as in the recording "
                    "(inconsistent_step)");
    }
    say("dflop: note: the timeline shows what ran when, but cannot be replayed: {}; see docs/replay.md\n",
        why);
    return shown;
  }
  std::vector<Timeline> timelines;
  for (const PipelineStep& step : pipeline.steps) timelines.push_back(step.timeline);
  return timelines;
}

/// Rejects a timeline if the traces have only ranges of the host and no step can be replayed.
void require_steps(const std::vector<KinetoTrace>& traces, const PipelineImport& pipeline) {
  const bool device = std::ranges::any_of(traces, [](const KinetoTrace& t) { return !t.activities.empty(); });
  if (device || !pipeline.steps.empty()) return;
  const KinetoFinding& first = pipeline.findings.front();
  refuse_input(first.place,
               "expected a pipeline step that can be replayed, found none; the first finding is {}: {}; "
               "run without '--out' to print all {} findings",
               to_string(first.kind), first.text, pipeline.findings.size());
}

/// Returns how many steps are in all traces; 1 if no steps are marked.
std::size_t common_steps(const std::vector<KinetoTrace>& traces) {
  std::map<std::int64_t, std::size_t> traces_of;  // by number
  for (const KinetoTrace& trace : traces) {
    for (const KinetoStep& step : trace.steps) ++traces_of[step.number];
  }
  if (traces_of.empty()) return 1;
  return std::ranges::count_if(traces_of, [&](const auto& entry) { return entry.second == traces.size(); });
}

/// Returns the findings that replays must know: the first finding of each kind that misleads what-ifs, with
/// the number of such findings, and the reason if most steps are left out.
std::vector<RecordFinding> findings_for_replay(const std::vector<KinetoTrace>& traces,
                                               const PipelineImport& pipeline,
                                               const std::vector<KinetoFinding>& findings) {
  std::vector<RecordFinding> kept;
  for (int k = 0; k < kKinetoFindingKinds; ++k) {
    const auto kind = static_cast<KinetoFindingKind>(k);
    const auto first = std::ranges::find(findings, kind, &KinetoFinding::kind);
    if (!misleads_what_ifs(kind) || first == findings.end()) continue;
    const auto count = std::ranges::count(findings, kind, &KinetoFinding::kind);
    kept.push_back(
        {std::string(to_string(kind)),
         first->place + ": " + first->text + (count > 1 ? fmt::format(", the first of {}", count) : "")});
  }
  const std::size_t steps = common_steps(traces);
  const std::size_t left = pipeline.steps.size();
  const auto why = std::ranges::find_if(pipeline.findings, [](const KinetoFinding& finding) {
    return finding.kind != KinetoFindingKind::joint_ranges;
  });
  if (left > 0 && 2 * left < steps && why != pipeline.findings.end()) {
    kept.push_back(
        {std::string(to_string(why->kind)),
         fmt::format("{} of {} steps are left out, and the steps that are kept may differ from them: {}: "
                     "{}",
                     steps - left, steps, why->place, why->text)});
  }
  return kept;
}

/// Returns the timeline file of the steps.
std::string timeline_json(const Values& values, const std::vector<KinetoTrace>& traces,
                          const KinetoRanks& ranks, const PipelineImport& pipeline, const RecordedPlan* plan,
                          const std::vector<KinetoFinding>& findings) {
  Provenance made = made_by(values, plan);
  if (!pipeline.steps.empty()) made.first_iteration = pipeline.steps.front().number;
  return to_json(TimelineFile{.iterations = timelines_of(traces, ranks, pipeline),
                              .made_by = made,
                              .findings = findings_for_replay(traces, pipeline, findings)});
}

int run_import(const Values& values) {
  const Format format = read_format(values);
  const auto paths = trace_files(values["kineto"].as<std::vector<std::string>>());
  const std::vector<KinetoFindingKind> fatal = read_fail_on(values);
  const auto out = read_timeline_output(values, paths);
  const std::unique_ptr<RecordedPlan> plan = read_plan(values);
  std::vector<KinetoTrace> traces;
  for (const std::string& path : paths) traces.push_back(parse_kineto(read_text_file(path), path));
  settle_ranks(traces);
  align_steps(traces);
  const KinetoRanks ranks = compare_ranks(traces);
  std::vector<KinetoFinding> findings = check_kineto(traces, ranks);
  PipelineImport pipeline;
  std::vector<Nanoseconds> replayed;
  const bool has_ranges = has_pipeline_ranges(traces);
  if (has_ranges) {
    pipeline = read_pipeline(traces, ranks, plan.get(), replayed);
    findings.insert(findings.end(), pipeline.findings.begin(), pipeline.findings.end());
  } else if (plan) {
    refuse_input(paths.front(),
                 "expected ranges of pipeline steps, which '--plan' describes, found none; docs/replay.md "
                 "says how to record them");
  } else {
    pipeline = read_joined(traces, ranks, replayed);
    findings.insert(findings.end(), pipeline.findings.begin(), pipeline.findings.end());
  }
  const Savings savings = find_savings(traces, ranks, pipeline);
  std::vector<KinetoFinding> slow = straggler_findings(traces, ranks, pipeline.steps, savings.stragglers);
  tell_savings(savings, traces, slow);
  findings.insert(findings.end(), slow.begin(), slow.end());
  const bool is_fatal = std::ranges::any_of(
      findings, [&](const KinetoFinding& finding) { return std::ranges::count(fatal, finding.kind) > 0; });
  // If no timeline can be made, the findings say why. They are still printed and checked against --fail-on.
  std::string no_timeline;
  try {
    if (out) {
      if (has_ranges) require_steps(traces, pipeline);
      write_file_atomically(*out, timeline_json(values, traces, ranks, pipeline, plan.get(), findings));
    }
  } catch (const Error& error) {
    if (!is_fatal || error.kind() != ErrorKind::input) throw;
    no_timeline = error.what();
  }
  print_trace(format, traces, ranks, pipeline_table(pipeline, replayed), findings,
              straggler_table(savings, traces));
  tell_fatal(findings, fatal);
  if (pipeline.overlap > Nanoseconds(0)) {
    say("dflop: note: ranks begin steps up to {:.3f} ms before other ranks end the previous step: a step "
        "counts from the last rank's end of the previous step to the last rank's end of this step, and "
        "steps replay in sequence\n",
        1e3 * Seconds(pipeline.overlap).count());
  }
  const std::optional<std::string> why = traces.size() > 1 ? why_not_compared(traces) : std::nullopt;
  if (why) {
    say("dflop: note: no search for stragglers: {}, so they do not all do the same work ('replay --slow "
        "rank=R:0.9' shows what a faster rank saves)\n",
        *why);
  }
  if (!no_timeline.empty()) say("dflop: note: '--out' is not written: {}\n", no_timeline);
  return is_fatal ? 3 : 0;
}

}  // namespace

Command import_command() {
  Command command{
      .name = "import",
      .task = Task::explain,
      .summary = "read PyTorch-profiler traces, check them and show where the time went",
      .description =
          R"(Reads traces of torch.profiler (Kineto, Chrome JSON), one file per rank. Prints:
  - for each rank, the offset of its clock from the first file's clock
  - for each rank and step, the time on the device: busy + idle = device; exposed is communication while no
    kernel computes; forward, backward, optimizer and other are shares of compute
  - for each stream and process group, sums over the trace; with several ranks, the transfer time of a
    collective is its shortest kernel on any rank, and wait is the rest
  - findings, such as stragglers and missing events, with the first examples of each kind

JSON holds everything, CSV only the steps. docs/replay.md lists the kinds of findings, explains how phases,
clocks and waiting are found, and says which steps 'dflop replay' can run under what-ifs. With --plan, ranges are
checked against the plan, and stages get its shapes. With --schedule, step N ran the schedule's iteration N,
modulo the number of iterations.)",
      .example = "dflop import --kineto traces/kineto/rank0.json traces/kineto/rank1.json",
      .run = run_import,
  };
  command.options.add({
      {"kineto", texts("FILE...").required(),
       "traces of different ranks of one run (.json, .json.gz), folders of traces, or patterns such as "
       "'rank*.json'"},
  });
  add_plan_option(command.options, text("FILE"));
  add_schedule_option(command.options, text("FILE"));
  command.options.add(
      OptionGroup::output,
      {
          {"out", text("FILE").common(),
           "write a timeline with one iteration per step (.json, .json.gz), for 'dflop replay' if the "
           "steps have ranges of a pipeline or ranks that meet in collectives"},
          {"fail-on", text("KIND[,KIND]").common(),
           "exit with code 3 if there is a finding of one of these kinds; any: of any kind"},
      });
  return command;
}

}  // namespace dflop
