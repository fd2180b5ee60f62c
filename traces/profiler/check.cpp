#include "traces/profiler/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "traces/profiler/pipeline.hpp"

namespace dflop {
namespace {

using Kind = KinetoFindingKind;

struct KindText {
  std::string_view name;
  std::string_view explanation;
  bool misleads = false;
};

constexpr std::array<KindText, kKinetoFindingKinds> kKinds = {{
    {"acausal", "a kernel or copy starts before the call that launched it"},
    {"overlap", "two kernels or copies of one stream run at the same time"},
    {"missing_launch", "a kernel or copy without the call that launched it"},
    {"missing_activity", "a call that starts work, without the kernel or copy"},
    {"empty_step", "a step that launched nothing"},
    {"missing_collective", "a collective or message that another rank of its group does not have", true},
    {"unequal_collective", "a collective for which ranks give different types or sizes", true},
    {"sequence_gap", "sequence numbers of a process group that are missing"},
    {"unaligned_clocks", "a clock that cannot be aligned with the others' by the ends of collectives", true},
    {"truncated_profile", "steps that are cut off or missing in the record, or work outside all steps"},
    {"no_device_activity", "a trace without kernels and copies of a device"},
    {"straggler", "a rank for which the others wait; fixing it saves at least 5 % of a step"},
    {"waiting", "ranks that wait at least 5 % of their steps, but not for a single rank"},
    {"unread_range", "a name that begins like the name of a range but cannot be read"},
    {"overlapping_ranges", "a range that begins before the rank's previous range has ended"},
    {"repeated_range", "a range that a rank has twice in a step"},
    {"missing_range", "a forward without its backward, or a stage or rank without ranges"},
    {"missing_rank", "fewer traces than the run has ranks", true},
    {"different_runs", "ranks that do not run a step at the same time, or number it differently", true},
    {"unplaced_message", "a message that belongs to no forward or backward"},
    {"unmatched_message", "a message whose other end is not found, or may be on several ranks"},
    {"unlike_plan", "a step whose ranks, stages or messages differ from the plan"},
    {"inconsistent_step", "a step whose unchanged replay takes a different time"},
    {"joint_ranges", "ranks that meet inside their ranges of compute, as with tensor parallelism and FSDP",
     true},
    {"loose_json", "a file with values, in fields that dflop does not use, that are not strict JSON"},
}};

/// Returns "1234.567 us".
std::string us(Nanoseconds time) {
  return fmt::format("{:.3f} us", static_cast<double>(time.count()) * 1e-3);
}

/// Tells whether a trace is from a pipeline that ran only on the host.
bool is_host_pipeline(const KinetoTrace& trace) {
  return trace.activities.empty() &&
         std::ranges::any_of(trace.ranges, [](const KinetoRange& range) { return is_compute(range.kind); });
}

/// A TraceChecker checks one trace; the caller sorts its findings.
class TraceChecker {
 public:
  TraceChecker(const KinetoTrace& trace, std::vector<KinetoFinding>& findings)
      : trace_(trace), findings_(findings) {}

  void run() {
    check_json();
    check_device();
    check_launches();
    check_streams();
    check_steps();
    check_record();
    check_sequences();
  }

 private:
  void check_json() {
    if (trace_.loose_values == 0) return;
    findings_.push_back(
        {Kind::loose_json, 0, trace_.file,
         fmt::format("{} value{} not strict JSON: NaN, infinities, or strings with control characters, plain "
                     "backslashes or bytes that are not UTF-8; dflop uses none of them",
                     trace_.loose_values, trace_.loose_values == 1 ? " is" : "s are")});
  }

  void check_device() {
    if (!trace_.activities.empty() || is_host_pipeline(trace_)) return;
    findings_.push_back({Kind::no_device_activity, 0, trace_.file,
                         "expected kernels or copies, as ProfilerActivity.CUDA records them, found none"});
  }

  void add(Kind kind, std::size_t event, const std::string& name, std::string text) {
    findings_.push_back({kind, event, kineto_place(trace_, event, name), std::move(text)});
  }

  void add(Kind kind, const KinetoActivity& activity, std::string text) {
    add(kind, activity.event, trace_.names[activity.name], std::move(text));
  }

  void add(Kind kind, const KinetoStep& step, std::string text) {
    add(kind, step.event, fmt::format("ProfilerStep#{}", step.number), std::move(text));
  }

  void check_launches() {
    for (const KinetoActivity& activity : trace_.activities) {
      if (activity.launch < 0) {
        add(Kind::missing_launch, activity, "no call of the CUDA runtime or driver has its correlation");
        continue;
      }
      const Nanoseconds launch = trace_.launches[activity.launch].start;
      if (activity.start >= launch) continue;
      add(Kind::acausal, activity,
          fmt::format("starts {} before its launch at {}", us(launch - activity.start), us(launch)));
    }
    const std::string_view graphs = uses_graphs(trace_) ? kMayBeCaptured : "";
    for (const KinetoLaunch& launch : trace_.launches) {
      if (!launch.starts_work || launch.has_work) continue;
      add(Kind::missing_activity, launch.event, trace_.names[launch.name],
          fmt::format("no kernel or copy has its correlation {}{}", launch.correlation, graphs));
    }
  }

  void check_streams() {
    std::map<std::pair<std::int64_t, std::int64_t>, const KinetoActivity*> last;
    for (const KinetoActivity& activity : trace_.activities) {
      const KinetoActivity*& before = last[{activity.device, activity.stream}];
      // Times in whole microseconds may be rounded toward each other.
      const Nanoseconds slack = trace_.resolution.count() > 1 ? trace_.resolution : Nanoseconds(0);
      if (before != nullptr && before->end() > activity.start + slack) {
        add(Kind::overlap, activity,
            fmt::format("starts {} before the end of traceEvents[{}] on stream {}",
                        us(before->end() - activity.start), before->event, activity.stream));
      }
      if (before == nullptr || activity.end() > before->end()) before = &activity;
    }
  }

  void check_steps() {
    std::vector<bool> has_work(trace_.steps.size(), false);
    for (const KinetoActivity& activity : trace_.activities) {
      if (activity.step >= 0) has_work[activity.step] = true;
    }
    for (std::size_t s = 0; s < trace_.steps.size(); ++s) {
      const KinetoStep& step = trace_.steps[s];
      if (!has_work[s] && !is_host_pipeline(trace_))
        add(Kind::empty_step, step, "launches no kernel and no copy");
      if (s > 0 && step.number != trace_.steps[s - 1].number + 1) {
        add(Kind::truncated_profile, step,
            fmt::format("expected after step {}, found step {}", trace_.steps[s - 1].number, step.number));
      }
    }
  }

  void check_record() {
    for (const KinetoStep& step : trace_.steps) {
      if (!trace_.record_end || step.start + step.duration <= *trace_.record_end + trace_.resolution)
        continue;
      add(Kind::truncated_profile, step,
          fmt::format("ends {} after the record does", us(step.start + step.duration - *trace_.record_end)));
    }
    std::int64_t outside = 0;
    const KinetoActivity* first = nullptr;
    for (const KinetoActivity& activity : trace_.activities) {
      if (activity.step >= 0 || trace_.steps.empty()) continue;
      if (outside++ == 0) first = &activity;
    }
    if (first == nullptr) return;
    add(Kind::truncated_profile, *first,
        fmt::format("launched outside all steps, one of {} such kernels and copies", outside));
  }

  void check_sequences() {
    std::map<std::string, std::int64_t> last;
    for (const KinetoCollective& c : trace_.collectives) {
      if (!c.sequence || c.source || c.destination) continue;
      const std::string group = fmt::format("'{}' of {}", c.group, c.group_size);
      const auto [it, fresh] =
          last.try_emplace(fmt::format("{} {}", group, fmt::join(c.ranks, ",")), *c.sequence);
      if (*c.sequence > it->second && *c.sequence - 1 > it->second) {
        add(Kind::sequence_gap, trace_.activities[c.activity],
            fmt::format("sequence number {} after {} in process group {}", *c.sequence, it->second, group));
      }
      it->second = std::max(it->second, *c.sequence);
    }
  }

  const KinetoTrace& trace_;
  std::vector<KinetoFinding>& findings_;
};

/// Lists the ranks of the exchange's group that have a trace but no end of the exchange, by their files. If
/// the group is not recorded, it may contain any rank, so only an exchange with a single end is doubtful.
std::string missing_ends(const std::vector<KinetoTrace>& traces, const KinetoExchange& exchange,
                         const KinetoCollective& c) {
  std::string missing;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const auto here = [&](const KinetoExchange::End& end) { return end.trace == t; };
    if (!traces[t].rank || std::any_of(exchange.ends.begin(), exchange.ends.end(), here)) continue;
    const std::int32_t rank = *traces[t].rank;
    bool expected = std::binary_search(c.ranks.begin(), c.ranks.end(), rank);
    if (c.source || c.destination) expected = rank == c.source || rank == c.destination;
    if (expected) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
  }
  return missing;
}

void check_exchanges(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                     std::vector<std::vector<KinetoFinding>>& findings) {
  for (const KinetoExchange& exchange : ranks.exchanges) {
    const KinetoExchange::End& end = exchange.ends.front();
    const KinetoTrace& trace = traces[end.trace];
    const KinetoCollective& c = trace.collectives[end.collective];
    const KinetoActivity& activity = trace.activities[c.activity];
    std::string text;
    if (exchange.recorded) {
      const std::string missing = missing_ends(traces, exchange, c);
      if (!missing.empty()) text = fmt::format("{} is missing on rank {}", c.name, missing);
    } else if (exchange.ends.size() == 1 && traces.size() > 1) {
      text = fmt::format("{}: no other rank has one that overlaps it; its group is not recorded", c.name);
    }
    if (text.empty()) continue;
    findings[end.trace].push_back({Kind::missing_collective, activity.event,
                                   kineto_place(trace, activity.event, trace.names[activity.name]),
                                   std::move(text)});
  }
}

/// Finds traces whose steps are numbered differently from others', and collectives that are in different
/// steps on different ranks regardless of numbers.
void check_step_numbers(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                        std::vector<std::vector<KinetoFinding>>& findings) {
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const KinetoTrace& trace = traces[t];
    if (trace.renumbered == 0 || trace.steps.empty()) continue;
    const std::int64_t first = trace.steps.front().number;
    const std::int64_t last = trace.steps.back().number;
    findings[t].push_back(
        {Kind::different_runs, trace.steps.front().event, trace.file,
         fmt::format("numbers its steps {} to {}, but by their collectives they are the steps {} to {} of "
                     "other ranks: the numbers of the other ranks are used",
                     first + trace.renumbered, last + trace.renumbered, first, last)});
  }
  std::map<std::pair<std::size_t, std::size_t>, std::pair<KinetoFinding, std::size_t>> apart;  // by traces
  for (const KinetoExchange& exchange : ranks.exchanges) {
    std::optional<std::pair<std::size_t, std::int64_t>> before;
    for (const KinetoExchange::End& end : exchange.ends) {
      const KinetoTrace& trace = traces[end.trace];
      const KinetoCollective& c = trace.collectives[end.collective];
      const KinetoActivity& activity = trace.activities[c.activity];
      if (!exchange.recorded || activity.step < 0) continue;
      const std::int64_t number = trace.steps[activity.step].number;
      if (!before) before = {end.trace, number};
      if (before->second == number) continue;
      const auto [found, fresh] = apart.try_emplace({end.trace, before->first});
      auto& [finding, count] = found->second;
      ++count;
      if (!fresh) continue;
      finding = {Kind::different_runs, activity.event,
                 kineto_place(trace, activity.event, trace.names[activity.name]),
                 fmt::format("{} lies in step {}, on rank {} in step {}", c.name, number,
                             traces[before->first].rank.value_or(0), before->second)};
    }
  }
  for (auto& [pair, entry] : apart) {
    auto& [finding, count] = entry;
    if (count > 1) finding.text += fmt::format(", the first of {} such", count);
    findings[pair.first].push_back(std::move(finding));
  }
}

/// Tells whether a collective has equally many elements on all ranks; in an all-to-all, for example, parts
/// may differ.
bool has_equal_parts(const KinetoCollective& c) {
  return c.name.find("allreduce") != std::string::npos || c.name.find("all_reduce") != std::string::npos ||
         c.name == "_allgather_base" || c.name == "_reduce_scatter_base";
}

/// Returns the type and, if all ranks have equally many elements, the sizes of a rank's part: "Float, 400
/// bytes in, 400 bytes out".
std::string part_text(const KinetoCollective& c) {
  const auto size = [](const std::optional<Bytes>& bytes) {
    return bytes ? std::to_string(bytes->count) : std::string("unknown");
  };
  if (!has_equal_parts(c)) return c.dtype;
  return fmt::format("{}, {} bytes in, {} bytes out", c.dtype, size(c.in), size(c.out));
}

/// Finds parts of a collective that differ from the parts of most of its ranks.
void check_parts(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                 std::vector<std::vector<KinetoFinding>>& findings) {
  for (const KinetoExchange& exchange : ranks.exchanges) {
    if (!exchange.recorded) continue;
    std::map<std::string, std::size_t> ends_of;  // by their text
    const auto collective_of = [&](const KinetoExchange::End& end) -> const KinetoCollective& {
      return traces[end.trace].collectives[end.collective];
    };
    const auto is_message = [](const KinetoCollective& c) { return c.source || c.destination; };
    for (const KinetoExchange::End& end : exchange.ends) {
      const KinetoCollective& c = collective_of(end);
      if (!c.dtype.empty() && !is_message(c)) ++ends_of[part_text(c)];
    }
    if (ends_of.size() < 2) continue;
    const std::string usual =
        std::ranges::max_element(ends_of, {}, [](const auto& entry) { return entry.second; })->first;
    for (const KinetoExchange::End& end : exchange.ends) {
      const KinetoTrace& trace = traces[end.trace];
      const KinetoCollective& c = collective_of(end);
      if (c.dtype.empty() || is_message(c) || part_text(c) == usual) continue;
      const KinetoActivity& activity = trace.activities[c.activity];
      findings[end.trace].push_back(
          {Kind::unequal_collective, activity.event,
           kineto_place(trace, activity.event, trace.names[activity.name]),
           fmt::format("{}: expected {}, as on other ranks, found {}", c.name, usual, part_text(c))});
    }
  }
}

/// Tells whether the trace has exchanges that were matched with others by their times.
bool is_joined_by_time(const KinetoRanks& ranks, std::size_t trace) {
  return std::ranges::any_of(ranks.shares[trace], [&](const KinetoShare& share) {
    return share.transfer && !ranks.exchanges[share.exchange].recorded;
  });
}

/// An offset by itself is not a finding, because it is corrected. An offset that may have misled the matching
/// of collectives is a finding, and so are ends that no single offset aligns.
void check_clocks(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                  std::vector<std::vector<KinetoFinding>>& findings) {
  for (std::size_t t = 1; t < traces.size(); ++t) {
    const KinetoClock& clock = ranks.clocks[t];
    std::string text;
    if (is_host_pipeline(traces[t])) continue;  // import_pipeline() compares clocks by messages
    const bool is_doubtful = clock.spread > kMaxClockSpread ||
                             (std::chrono::abs(clock.offset) > kAlignedClocks && is_joined_by_time(ranks, t));
    if (clock.matches == 0) {
      text = "shares no collective with the previous ranks, so its clock is not known";
    } else if (is_doubtful) {
      text = fmt::format("is {} {} of the first file's clock (median of {}, spread {})",
                         us(std::chrono::abs(clock.offset)), clock.offset.count() > 0 ? "ahead" : "behind",
                         clock.matches, us(clock.spread));
      if (clock.spread <= kMaxClockSpread) text += ", and its collectives are joined by time";
    }
    if (!text.empty()) findings[t].push_back({Kind::unaligned_clocks, 0, traces[t].file, std::move(text)});
  }
}

/// Finds ranks of the run that have no trace. A single trace tells by its record of the run; several traces
/// also by their groups. For pipelines, missing ranks are found together with their ranges.
void check_ranks(const std::vector<KinetoTrace>& traces, std::vector<std::vector<KinetoFinding>>& findings) {
  if (traces.empty() || has_pipeline_ranges(traces)) return;
  std::int64_t size = 0;
  std::string source;
  const auto take = [&](std::int64_t found, const char* said_by) {
    if (found <= size) return;
    size = found;
    source = said_by;
  };
  for (const KinetoTrace& trace : traces) {
    take(trace.world_size.value_or(0), "distributedInfo.world_size");
    if (traces.size() == 1) break;
    for (const KinetoCollective& c : trace.collectives) {
      take(c.group_size, "the size of a process group");
      if (!c.ranks.empty()) take(std::int64_t{c.ranks.back()} + 1, "the ranks of a process group");
    }
  }
  if (size <= static_cast<std::int64_t>(traces.size())) return;
  std::set<std::int64_t> given;
  for (const KinetoTrace& trace : traces) given.insert(trace.rank.value_or(-1));
  constexpr std::size_t kMaxNamed = 8;
  std::vector<std::string> missing;
  for (std::int64_t rank = 0; rank < size && missing.size() <= kMaxNamed; ++rank) {
    if (given.count(rank) == 0) missing.push_back(std::to_string(rank));
  }
  if (missing.size() > kMaxNamed) missing.back() = "...";
  findings.front().push_back({Kind::missing_rank, 0, traces.front().file,
                              fmt::format("the run has {} ranks by {}, found traces of {}; missing {}", size,
                                          source, traces.size(), fmt::join(missing, ", "))});
}

}  // namespace

std::string_view to_string(KinetoFindingKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].name;
}

std::string kineto_place(const KinetoTrace& trace, std::size_t event, const std::string& name) {
  return fmt::format("{}: traceEvents[{}] '{:.60}'", trace.file, event, name);
}

std::string_view explanation(KinetoFindingKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].explanation;
}

bool misleads_what_ifs(KinetoFindingKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].misleads;
}

std::vector<KinetoFinding> check_kineto(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks) {
  std::vector<std::vector<KinetoFinding>> by_trace(traces.size());
  for (std::size_t t = 0; t < traces.size(); ++t) TraceChecker(traces[t], by_trace[t]).run();
  check_exchanges(traces, ranks, by_trace);
  check_step_numbers(traces, ranks, by_trace);
  check_parts(traces, ranks, by_trace);
  check_clocks(traces, ranks, by_trace);
  check_ranks(traces, by_trace);
  std::vector<KinetoFinding> findings;
  for (std::vector<KinetoFinding>& own : by_trace) {
    std::stable_sort(own.begin(), own.end(),
                     [](const KinetoFinding& a, const KinetoFinding& b) { return a.kind < b.kind; });
    std::move(own.begin(), own.end(), std::back_inserter(findings));
  }
  return findings;
}

std::vector<KinetoFinding> straggler_findings(const std::vector<KinetoTrace>& traces,
                                              const KinetoRanks& ranks,
                                              const std::vector<PipelineStep>& steps,
                                              const KinetoStragglers& stragglers) {
  std::vector<KinetoFinding> findings;
  for (std::size_t k = 0; k < stragglers.ranks.size(); ++k) {
    const std::string& file = traces[stragglers.ranks[k].trace].file;
    findings.push_back({Kind::straggler, 0, file, describe(stragglers, k, traces)});
  }
  if (!findings.empty()) return findings;
  if (const std::optional<KinetoWaiting> waiting = find_waiting(traces, ranks, steps)) {
    findings.push_back({Kind::waiting, 0,
                        fmt::format("{} and {} more", traces.front().file, traces.size() - 1),
                        describe(*waiting, traces)});
  }
  return findings;
}

}  // namespace dflop
