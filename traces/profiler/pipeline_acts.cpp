#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "traces/profiler/pipeline_record.hpp"

namespace dflop {
namespace {

using Finding = KinetoFindingKind;
using Range = KinetoRangeKind;

/// Returns the op of a range's act; nothing for ranges of messages and waits.
std::optional<Op> op_of(Range kind) {
  switch (kind) {
    case Range::forward:
      return Op::forward;
    case Range::backward:
      return Op::backward;
    case Range::backward_input:
      return Op::backward_input;
    case Range::backward_weight:
      return Op::backward_weight;
    case Range::all_reduce:
      return Op::all_reduce;
    case Range::all_reduce_start:
      return Op::all_reduce_start;
    case Range::all_reduce_wait:
      return Op::all_reduce_wait;
    case Range::optimizer_step:
      return Op::optimizer_step;
    case Range::send_forward:
    case Range::send_backward:
    case Range::receive_forward:
    case Range::receive_backward:
    case Range::send:
    case Range::receive:
    case Range::reshard_send:
    case Range::reshard_receive:
    case Range::wait:
      break;
  }
  return std::nullopt;
}

/// Returns the innermost range around a launch: on its thread, else on any, because autograd launches
/// backwards from its own threads. Ranges are sorted by start.
const KinetoRange* range_around(const std::vector<const KinetoRange*>& ranges, const KinetoLaunch& launch) {
  const KinetoRange* any = nullptr;
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), launch.start,
                                      [](Nanoseconds t, const KinetoRange* r) { return t < r->start; });
  for (auto range = after; range != ranges.begin();) {
    --range;
    if (launch.start >= (*range)->end) continue;
    if ((*range)->thread == launch.thread) return *range;
    if (any == nullptr) any = *range;
  }
  return any;
}

/// An ActReader reads the ranges of one rank.
class ActReader {
 public:
  ActReader(PipelineRecord& record, PipelineRank& rank)
      : record_(record), rank_(rank), trace_(record.trace_of(rank)) {}

  void run() {
    rank_.ranges = record_.in_step(trace_, trace_.ranges);
    rank_.device = !trace_.activities.empty();
    if (rank_.device) read_kernels();
    for (const KinetoRange* range : rank_.ranges) add_act(*range);
    if (rank_.device) {
      check_kernels();
    } else {
      for (const KinetoRange* range : rank_.ranges) {
        if (range->kind == Range::wait) rank_.waits.push_back(aligned(range->start, range->end));
      }
    }
    settle_stages();
    check_order();
    check_pairs();
  }

 private:
  PipelineInterval aligned(Nanoseconds begin, Nanoseconds end) const {
    return {record_.aligned(rank_, begin), record_.aligned(rank_, end)};
  }

  void read_kernels() {
    const PipelineInterval window = record_.window_of(trace_);
    for (const KinetoActivity& activity : trace_.activities) {
      if (activity.launch < 0) continue;
      const KinetoLaunch& launch = trace_.launches[static_cast<std::size_t>(activity.launch)];
      if (launch.start < window.begin || launch.start >= window.end) continue;
      rank_.kernels.push_back({&activity, range_around(rank_.ranges, launch)});
    }
    for (const auto& [activity, range] : rank_.kernels) {
      if (activity->collective < 0 || range == nullptr || range->kind != Range::forward) continue;
      const KinetoCollective& c = trace_.collectives[activity->collective];
      if (c.source || c.destination || c.ranks.size() < 2) continue;
      if (sums(c.name)) inner_.emplace(c.group, c.ranks);
      if (sums(c.name) || gathers(c.name)) record_.joint.insert(c.ranks);
    }
    for (const auto& [activity, range] : rank_.kernels) {
      if (activity->work == KinetoWork::communication && !is_inside(*activity, range)) continue;
      times_[range].add(*activity);
    }
  }

  /// Tells whether a collective is a part of its range's work, as in tensor parallelism; gradients are summed
  /// only in backwards.
  bool is_inside(const KinetoActivity& activity, const KinetoRange* range) const {
    if (activity.collective < 0 || range == nullptr || !is_compute(range->kind)) return false;
    const KinetoCollective& c = trace_.collectives[activity.collective];
    return inner_.contains({c.group, c.ranks});
  }

  void add_act(const KinetoRange& range) {
    const std::optional<Op> op = op_of(range.kind);
    if (!op) return;
    PipelineAct act{.range = &range, .op = *op, .stage = range.stage, .microbatch = range.microbatch};
    if (range.end > record_.window_of(trace_).end) {
      record_.add(Finding::overlapping_ranges, rank_, range.event, name_of(range),
                  "expected it to end in the step in which it began");
    }
    const PipelineInterval host = aligned(range.start, range.end);
    act.called = act.start = host.begin;
    act.returned = act.end = host.end;
    if (rank_.device && !is_collective(*op)) {
      const auto found = times_.find(&range);
      if (found == times_.end()) {
        if (*op == Op::optimizer_step) return;  // it has nothing to do
        record_.add(Finding::missing_activity, rank_, range.event, name_of(range),
                    "expected kernels that were launched inside it, found none");
        return;
      }
      const PipelineInterval device = aligned(found->second.begin, found->second.end);
      act.start = device.begin;
      act.end = device.end;
    }
    rank_.acts.push_back(std::move(act));
  }

  /// Finds calls inside a range that start work but whose work is missing, and work without a known range:
  /// the range's time would be too short.
  void check_kernels() {
    for (const KinetoLaunch* launch : record_.in_step(trace_, trace_.launches)) {
      if (!launch->starts_work || launch->has_work || range_around(rank_.ranges, *launch) == nullptr)
        continue;
      record_.add(Finding::missing_activity, rank_, launch->event,
                  trace_.names[static_cast<std::size_t>(launch->name)],
                  fmt::format("expected its kernel, without which its range would be too short, found none{}",
                              uses_graphs(trace_) ? kMayBeCaptured : ""));
    }
    if (rank_.acts.empty()) return;
    for (const KinetoActivity& activity : trace_.activities) {
      const PipelineInterval time = aligned(activity.start, activity.end());
      if (activity.launch >= 0 || time.end <= rank_.acts.front().start || time.begin >= rank_.acts.back().end)
        continue;
      record_.add(Finding::missing_launch, rank_, activity.event,
                  trace_.names[static_cast<std::size_t>(activity.name)],
                  "expected the call that launched it, without which its range is not known, found none");
    }
  }

  /// Assigns acts without a stage to the rank's first stage.
  void settle_stages() {
    std::int32_t first = INT32_MAX;
    for (const PipelineAct& act : rank_.acts) {
      if (act.stage >= 0) first = std::min(first, act.stage);
    }
    for (PipelineAct& act : rank_.acts) {
      if (act.stage < 0) act.stage = first;
    }
  }

  /// Finds ranges that overlap, or whose kernels ran in another order than they were launched.
  void check_order() {
    const PipelineAct* before = nullptr;
    for (const PipelineAct& act : rank_.acts) {
      if (is_collective(act.op)) continue;  // it may be called from inside a backward
      if (before != nullptr && act.called < before->returned) {
        record_.add(Finding::overlapping_ranges, rank_, act.range->event, name_of(*act.range),
                    fmt::format("expected it to begin after '{}' ended", name_of(*before->range)));
      } else if (before != nullptr && act.start < before->end) {
        record_.add(Finding::overlapping_ranges, rank_, act.range->event, name_of(*act.range),
                    fmt::format("expected its kernels after the kernels of '{}', found them before or at the "
                                "same time",
                                name_of(*before->range)));
      }
      before = &act;
    }
  }

  /// Finds repeated acts of a rank, and forwards or backwards without the other.
  void check_pairs() {
    std::set<std::tuple<std::int32_t, std::int32_t, Op>> seen;
    for (const PipelineAct& act : rank_.acts) {
      if (!is_compute(act.op) || seen.insert({act.stage, act.microbatch, act.op}).second) continue;
      record_.add(Finding::repeated_range, rank_, act.range->event, name_of(*act.range),
                  "expected it once; call the profiler's step() after each step");
    }
    for (const auto& key : seen) {
      const std::int32_t stage = std::get<0>(key);
      const std::int32_t microbatch = std::get<1>(key);
      const Op op = std::get<2>(key);
      const auto has = [&](Op other) { return seen.count({stage, microbatch, other}) > 0; };
      const auto lacks = [&](std::string_view what) {
        record_.add(Finding::missing_range, rank_,
                    fmt::format("stage {} has a {} of microbatch {} and no {}", stage, to_string(op),
                                microbatch, what));
      };
      const bool split = has(Op::backward_input) && has(Op::backward_weight);
      if (op == Op::forward && !has(Op::backward) && !split) lacks("backward, or both of its parts");
      if (op != Op::forward && !has(Op::forward)) lacks("forward");
      if (op == Op::backward && (has(Op::backward_input) || has(Op::backward_weight)))
        lacks("single kind of backward: both a whole backward and its parts occur");
    }
  }

  struct KernelTime {
    Nanoseconds begin = Nanoseconds::max();
    Nanoseconds end = Nanoseconds::min();
    void add(const KinetoActivity& activity) {
      begin = std::min(begin, activity.start);
      end = std::max(end, activity.end());
    }
  };

  PipelineRecord& record_;
  PipelineRank& rank_;
  const KinetoTrace& trace_;
  std::set<std::pair<std::string, std::vector<std::int32_t>>> inner_;  ///< groups that sum inside forwards
  std::map<const KinetoRange*, KernelTime> times_;
};

/// Finds a rank whose step lies entirely after or before the steps of others.
void check_times(PipelineRecord& record) {
  Nanoseconds latest_begin = Nanoseconds::min();
  Nanoseconds earliest_end = Nanoseconds::max();
  const PipelineRank* late = nullptr;
  for (const PipelineRank& rank : record.ranks) {
    if (rank.acts.front().start > latest_begin) late = &rank;
    latest_begin = std::max(latest_begin, rank.acts.front().start);
    earliest_end = std::min(earliest_end, rank.acts.back().end);
  }
  if (latest_begin < earliest_end) return;
  record.add(
      Finding::different_runs, *late,
      fmt::format(
          "it begins {:.3f} s after another rank has ended it: the traces are from different runs or lack "
          "a common clock",
          Seconds(latest_begin - earliest_end).count()));
}

/// Counts stages, and finds stages without a rank, and microbatches that are rarer on a stage than others:
/// each rank of a stage has all of them or, for a separate encoder, its share.
void check_stages(PipelineRecord& record) {
  std::map<std::int32_t, std::map<std::int32_t, int>> ranks_of;  // stage, microbatch
  std::set<std::int32_t> microbatches;
  for (const PipelineRank& rank : record.ranks) {
    for (const PipelineAct& act : rank.acts) {
      if (act.op != Op::forward) continue;
      ++ranks_of[act.stage][act.microbatch];
      microbatches.insert(act.microbatch);
    }
  }
  record.stages = ranks_of.rbegin()->first + 1;
  for (std::int32_t stage = 0; stage < record.stages; ++stage) {
    const auto found = ranks_of.find(stage);
    if (found == ranks_of.end()) {
      record.add(Finding::missing_range, record.ranks.front(),
                 fmt::format("no rank has stage {} of {}", stage, record.stages));
      continue;
    }
    std::map<std::int32_t, int>& ranks = found->second;
    int most = 0;
    for (const auto& [microbatch, count] : ranks) most = std::max(most, count);
    for (const std::int32_t microbatch : microbatches) {
      if (ranks[microbatch] == most) continue;
      record.add(Finding::missing_range, record.ranks.front(),
                 fmt::format("expected microbatch {} on {} ranks of stage {}, like other microbatches, "
                             "found {}",
                             microbatch, most, stage, ranks[microbatch]));
    }
  }
}

}  // namespace

std::string name_of(const KinetoRange& range) {
  std::string name(to_string(range.kind));
  if (range.stage >= 0) name += fmt::format(" stage={}", range.stage);
  if (range.microbatch >= 0) name += fmt::format(" mb={}", range.microbatch);
  return name;
}

void PipelineRecord::add(KinetoFindingKind kind, const PipelineRank& rank, std::size_t event,
                         const std::string& name, const std::string& text) {
  findings.push_back(
      {kind, event, kineto_place(trace_of(rank), event, name), fmt::format("step {}: {}", number, text)});
}

void PipelineRecord::add(KinetoFindingKind kind, const PipelineRank& rank, const std::string& text) {
  findings.push_back({kind, 0, trace_of(rank).file, fmt::format("step {}: {}", number, text)});
}

PipelineInterval PipelineRecord::window_of(const KinetoTrace& trace) const {
  for (const KinetoStep& step : trace.steps) {
    if (step.number == number) return {step.start, step.start + step.duration};
  }
  return {Nanoseconds::min(), trace.steps.empty() ? Nanoseconds::max() : Nanoseconds::min()};
}

void read_acts(PipelineRecord& record) {
  for (PipelineRank& rank : record.ranks) ActReader(record, rank).run();
  for (const PipelineRank& rank : record.ranks) {
    const bool computes =
        std::ranges::any_of(rank.acts, [](const PipelineAct& act) { return is_compute(act.op); });
    if (!computes) {
      record.add(Finding::missing_range, rank,
                 "expected ranges of forwards and backwards as on other ranks, found none");
    }
  }
  if (!record.is_sound()) return;
  check_times(record);
  check_stages(record);
}

}  // namespace dflop
