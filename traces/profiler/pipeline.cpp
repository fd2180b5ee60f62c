#include "traces/profiler/pipeline.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "traces/profiler/pipeline_record.hpp"

namespace dflop {
namespace {

using Finding = KinetoFindingKind;

/// Steps overlap if they do so for at least this fraction of their time.
constexpr double kMinOverlap = 0.005;

/// A ReadStep is a step with the record from which its timeline is made.
struct ReadStep {
  PipelineRecord record;
  PipelineStep step;
};

/// Returns a step without its timeline; nothing, with findings, if an event has no place.
std::optional<ReadStep> read_step(const std::vector<KinetoTrace>& traces, const KinetoRanks& clocks,
                                  const std::vector<std::size_t>& order, std::int64_t number,
                                  std::vector<KinetoFinding>& findings) {
  PipelineRecord record{traces, clocks, number, findings, findings.size()};
  for (const std::size_t trace : order) record.ranks.push_back({.trace = trace});
  PipelineStep step;
  step.number = number;
  for (const auto read :
       {read_acts, read_reductions, join_reductions, read_messages, join_messages, align_clocks}) {
    read(record);
    if (!record.is_sound()) return std::nullopt;
  }
  set_arrivals(record, step);
  step.joint = std::move(record.joint);
  return ReadStep{std::move(record), std::move(step)};
}

/// Returns when the ranks ended the previous step, on the clock of step k; empty if unknown.
std::vector<Nanoseconds> ends_before(const std::vector<ReadStep>& steps, std::size_t k) {
  if (k == 0 || steps[k - 1].step.number + 1 != steps[k].step.number) return {};
  std::vector<Nanoseconds> ends = rank_ends(steps[k - 1].record);
  for (std::size_t r = 0; r < ends.size(); ++r)
    ends[r] += steps[k - 1].record.ranks[r].ahead - steps[k].record.ranks[r].ahead;
  return ends;
}

/// Makes the timelines of the steps. If some ranks begin a step before others have ended the previous one,
/// that overlap counts once. Returns the longest overlap; 0 if there is none.
Nanoseconds make_timelines(std::vector<ReadStep>& steps) {
  std::vector<std::vector<Nanoseconds>> before;
  Nanoseconds longest{0};
  for (std::size_t k = 0; k < steps.size(); ++k) {
    before.push_back(ends_before(steps, k));
    Timeline& timeline = steps[k].step.timeline;
    timeline = pipeline_timeline(steps[k].record);
    if (before.back().empty()) continue;
    Nanoseconds begin = Nanoseconds::max();
    for (const PipelineRank& rank : steps[k].record.ranks) begin = std::min(begin, rank.acts.front().start);
    const Nanoseconds overlap = std::ranges::max(before.back()) - begin;
    if (Seconds(overlap) > kMinOverlap * Seconds(timeline.makespan)) longest = std::max(longest, overlap);
  }
  for (std::size_t k = 0; longest > Nanoseconds(0) && k < steps.size(); ++k)
    steps[k].step.timeline = pipeline_timeline(steps[k].record, &before[k]);
  return longest;
}

/// Returns the numbers of a trace's steps; 0 if it has no step marks.
std::set<std::int64_t> steps_of(const KinetoTrace& trace) {
  if (trace.steps.empty()) return {0};
  std::set<std::int64_t> numbers;
  for (const KinetoStep& step : trace.steps) numbers.insert(step.number);
  return numbers;
}

/// Returns the numbers of the steps that all traces have, and reports steps that some traces lack.
std::vector<std::int64_t> common_steps(const std::vector<KinetoTrace>& traces,
                                       std::vector<KinetoFinding>& findings) {
  std::vector<std::set<std::int64_t>> steps;
  for (const KinetoTrace& trace : traces) steps.push_back(steps_of(trace));
  std::set<std::int64_t> all;
  for (const std::set<std::int64_t>& some : steps) all.insert(some.begin(), some.end());
  std::vector<std::int64_t> common;
  for (const std::int64_t number : all) {
    const auto lacks = std::ranges::find_if(
        steps, [&](const std::set<std::int64_t>& some) { return some.count(number) == 0; });
    if (lacks == steps.end()) {
      common.push_back(number);
    } else {
      findings.push_back(
          {Finding::truncated_profile, 0, traces[static_cast<std::size_t>(lacks - steps.begin())].file,
           fmt::format("expected step {}, as on other ranks, found none: it is left out", number)});
    }
  }
  return common;
}

}  // namespace

bool has_pipeline_ranges(const std::vector<KinetoTrace>& traces) {
  return std::ranges::any_of(traces, [](const KinetoTrace& trace) {
    return std::ranges::any_of(trace.ranges, [](const KinetoRange& range) { return is_compute(range.kind); });
  });
}

PipelineImport import_pipeline(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks) {
  PipelineImport result;
  std::vector<std::size_t> order(traces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t t) { return traces[t].rank.value_or(0); });
  for (const KinetoTrace& trace : traces) {
    for (const std::size_t event : trace.unread_ranges) {
      result.findings.push_back({Finding::unread_range, event, kineto_place(trace, event, "a range"),
                                 "expected 'dflop:<kind> stage=S mb=M' or 'PP:<stage><action><microbatch>'"});
    }
    if (trace.world_size && *trace.world_size > static_cast<std::int64_t>(traces.size())) {
      result.findings.push_back({Finding::missing_rank, 0, trace.file,
                                 fmt::format("it ran on {} ranks, expected a trace of each, found {}",
                                             *trace.world_size, traces.size())});
    }
  }
  if (!result.findings.empty()) return result;
  std::vector<ReadStep> steps;
  for (const std::int64_t number : common_steps(traces, result.findings)) {
    if (auto step = read_step(traces, ranks, order, number, result.findings))
      steps.push_back(std::move(*step));
  }
  result.overlap = make_timelines(steps);
  for (ReadStep& read : steps) result.steps.push_back(std::move(read.step));
  std::set<std::vector<std::int32_t>> joint;
  for (const PipelineStep& step : result.steps) joint.insert(step.joint.begin(), step.joint.end());
  if (!joint.empty()) {
    std::string groups;
    for (const std::vector<std::int32_t>& group : joint)
      groups += fmt::format("{}{}", groups.empty() ? "" : "; ", fmt::join(group, ", "));
    result.findings.push_back(
        {Finding::joint_ranges, 0, traces.front().file,
         fmt::format(
             "ranks {} meet inside their forwards, as with tensor parallelism and FSDP: the time that one "
             "waits there for another counts as its compute. '--slow stage=' changes all ranks of a "
             "stage; '--slow rank=' does not change the ranks that waited",
             groups)});
  }
  return result;
}

}  // namespace dflop
