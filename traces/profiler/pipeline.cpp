#include "traces/profiler/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "traces/profiler/pipeline_record.hpp"

namespace dflop {
namespace {

using Finding = KinetoFindingKind;

/// Returns a step; nothing, with findings, where something has no place.
std::optional<PipelineStep> read_step(const std::vector<KinetoTrace>& traces, const KinetoRanks& clocks,
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
  step.timeline = pipeline_timeline(record);
  return step;
}

/// Returns the numbers of the steps that all traces have; 0 where none has marks of steps.
std::vector<std::int64_t> common_steps(const std::vector<KinetoTrace>& traces) {
  std::map<std::int64_t, std::size_t> seen;
  for (const KinetoTrace& trace : traces) {
    std::set<std::int64_t> own;
    for (const KinetoStep& step : trace.steps) own.insert(step.number);
    if (trace.steps.empty()) own.insert(0);
    for (const std::int64_t number : own) ++seen[number];
  }
  std::vector<std::int64_t> common;
  for (const auto& [number, count] : seen) {
    if (count == traces.size()) common.push_back(number);
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
                                 fmt::format("it is of {} ranks, expected a trace of each, found {}",
                                             *trace.world_size, traces.size())});
    }
  }
  if (!result.findings.empty()) return result;
  for (const std::int64_t number : common_steps(traces)) {
    if (auto step = read_step(traces, ranks, order, number, result.findings))
      result.steps.push_back(std::move(*step));
  }
  if (result.steps.empty() && result.findings.empty()) {
    result.findings.push_back({Finding::truncated_profile, 0, traces.front().file,
                               "expected a step that all ranks have recorded, found none"});
  }
  return result;
}

}  // namespace dflop
