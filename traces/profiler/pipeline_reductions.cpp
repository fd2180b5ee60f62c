#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "traces/profiler/pipeline_record.hpp"

namespace dflop {
namespace {

using Finding = KinetoFindingKind;

/// A Sum is a call or kernel that sums over ranks.
struct Sum {
  Nanoseconds called{0};  ///< by the host
  Nanoseconds returned{0};
  Nanoseconds start{0};
  Nanoseconds end{0};
  bool end_known = true;
  std::optional<Bytes> bytes;
  std::vector<std::int32_t> participants;
  std::size_t event = 0;
  std::size_t around = kNoIndex;  ///< the act in which it was called
};

/// A ReductionReader finds the reductions of one rank and orders their acts: an all_reduce_start stands
/// before the compute during which it takes effect.
class ReductionReader {
 public:
  ReductionReader(PipelineRecord& record, std::size_t rank)
      : record_(record), number_(rank), rank_(record.ranks[rank]), trace_(record.trace_of(rank_)) {}

  void run() {
    read_sums();
    for (std::size_t a = 0; a < rank_.acts.size(); ++a) {
      if (rank_.acts[a].op == Op::all_reduce) read_blocking(a);
    }
    std::set<std::int32_t> stages;
    for (const PipelineAct& act : rank_.acts) stages.insert(act.stage);
    for (const std::int32_t stage : stages) read_overlapping(stage);
    order_acts();
  }

 private:
  void read_sums() {
    if (rank_.device) {
      for (const PipelineKernel& kernel : rank_.kernels) {
        if (kernel.activity->collective >= 0) add_kernel(*kernel.activity);
      }
    }
    if (!sums_.empty()) return;
    for (const KinetoHostReduction* call : record_.in_step(trace_, trace_.reductions)) {
      Sum sum;
      sum.called = record_.aligned(rank_, call->start);
      sum.returned = record_.aligned(rank_, call->end);
      sum.start = record_.aligned(rank_, call->run_start.value_or(call->start));
      sum.end = record_.aligned(rank_, call->run_end.value_or(call->end));
      sum.end_known = call->run_end.has_value();
      sum.bytes = call->bytes;
      sum.event = call->event;
      add(std::move(sum));
    }
  }

  void add_kernel(const KinetoActivity& activity) {
    const KinetoCollective& c = trace_.collectives[static_cast<std::size_t>(activity.collective)];
    if (!sums(c.name)) return;
    const KinetoLaunch& launch = trace_.launches[static_cast<std::size_t>(activity.launch)];
    Sum sum;
    sum.called = sum.returned = record_.aligned(rank_, launch.start);
    sum.start = record_.aligned(rank_, activity.start);
    sum.end = record_.aligned(rank_, activity.end());
    sum.bytes = c.bytes();
    sum.participants = c.ranks;
    sum.event = activity.event;
    add(std::move(sum));
  }

  /// Keeps a sum called inside an act; others, such as sums of losses, do not reduce gradients.
  void add(Sum sum) {
    for (std::size_t a = 0; a < rank_.acts.size(); ++a) {
      const PipelineAct& act = rank_.acts[a];
      if (act.called <= sum.called && sum.called < act.returned && is_inner(a, sum.around)) sum.around = a;
    }
    if (sum.around != kNoIndex) sums_.push_back(std::move(sum));
  }

  bool is_inner(std::size_t act, std::size_t than) const {
    return than == kNoIndex || rank_.acts[act].called >= rank_.acts[than].called;
  }

  /// Reads an all_reduce; all sums of its range count as one.
  void read_blocking(std::size_t a) {
    PipelineAct& act = rank_.acts[a];
    PipelineReduction reduction{.rank = number_, .stage = act.stage, .start = act.start, .end = act.end};
    reduction.event = act.range->event;
    reduction.message = act.range->message;
    reduction.bytes = Bytes{};
    bool found = false;
    for (const Sum& sum : sums_) {
      if (sum.around != a) continue;
      if (rank_.device) {  // the device's times, not the host's
        reduction.start = found ? std::min(reduction.start, sum.start) : sum.start;
        reduction.end = found ? std::max(reduction.end, sum.end) : sum.end;
      }
      reduction.bytes =
          reduction.bytes && sum.bytes ? std::optional(*reduction.bytes + *sum.bytes) : std::nullopt;
      reduction.participants = sum.participants;
      found = true;
    }
    act.start = reduction.start;
    act.end = reduction.end;
    act.reduction = record_.reductions.size();
    record_.reductions.push_back(std::move(reduction));
  }

  /// Reads the reductions of a stage that overlap with compute: those begun by ranges or, without such
  /// ranges, those called in the last backward of the stage and in no other compute, as in
  /// DistributedDataParallel.
  void read_overlapping(std::int32_t stage) {
    std::vector<std::size_t> starts;
    std::vector<std::size_t> waits;
    std::size_t last_backward = kNoIndex;
    for (std::size_t a = 0; a < rank_.acts.size(); ++a) {
      const PipelineAct& act = rank_.acts[a];
      if (act.stage != stage) continue;
      if (act.op == Op::all_reduce_start) starts.push_back(a);
      if (act.op == Op::all_reduce_wait) waits.push_back(a);
      if (is_compute(act.op) && act.op != Op::forward) last_backward = a;
    }
    std::vector<const Sum*> sums;
    bool elsewhere = false;
    for (const Sum& sum : sums_) {
      const PipelineAct& act = rank_.acts[sum.around];
      if (act.stage != stage || act.op == Op::all_reduce) continue;
      elsewhere = elsewhere || (is_compute(act.op) && sum.around != last_backward);
      if (!is_compute(act.op) || sum.around == last_backward) sums.push_back(&sum);
    }
    std::ranges::sort(sums, {}, [](const Sum* sum) { return sum->called; });
    if (!starts.empty() || !waits.empty()) {
      read_ranged(stage, starts, waits, sums);
    } else if (!elsewhere && !sums.empty()) {
      read_inside(last_backward, sums);
    }
  }

  /// Adds the reduction that a start begins.
  void begin(PipelineAct& start, const Sum* sum) {
    PipelineReduction reduction{
        .rank = number_, .stage = start.stage, .start = start.called, .end = start.called};
    reduction.overlaps = true;
    reduction.end_known = false;
    reduction.event = start.range != nullptr ? start.range->event : 0;
    if (sum != nullptr) {
      reduction.start = sum->start;
      reduction.end = sum->end;
      reduction.end_known = sum->end_known;
      reduction.bytes = sum->bytes;
      reduction.participants = sum->participants;
      reduction.event = sum->event;
    }
    start.start = start.end = start.called;  // it takes no time on the rank
    start.reduction = record_.reductions.size();
    record_.reductions.push_back(std::move(reduction));
  }

  /// Matches starts, waits and sums of a stage in their orders. A single wait may be for all starts.
  void read_ranged(std::int32_t stage, const std::vector<std::size_t>& starts,
                   const std::vector<std::size_t>& waits, const std::vector<const Sum*>& sums) {
    if (starts.empty() || (waits.size() != starts.size() && waits.size() != 1)) {
      const std::size_t some = starts.empty() ? waits.front() : starts.front();
      const KinetoRange& range = *rank_.acts[some].range;
      record_.add(
          Finding::missing_range, rank_, range.event, name_of(range),
          fmt::format("expected an all_reduce_wait of stage {} for each all_reduce_start, or one for all, "
                      "found {} for {}",
                      stage, waits.size(), starts.size()));
      return;
    }
    for (std::size_t k = 0; k < starts.size(); ++k) {
      PipelineAct& start = rank_.acts[starts[k]];
      begin(start, k < sums.size() ? sums[k] : nullptr);
      const PipelineAct& wait = rank_.acts[waits[std::min(k, waits.size() - 1)]];
      if (waits.size() == 1 && k + 1 < starts.size()) {
        added_.push_back(wait_for(start, wait.called, wait.called));
      } else {
        rank_.acts[waits[std::min(k, waits.size() - 1)]].reduction = start.reduction;
      }
      PipelineReduction& reduction = record_.reductions.back();
      if (!reduction.end_known) reduction.end = std::max(reduction.start, wait.end);
    }
  }

  static PipelineAct wait_for(const PipelineAct& start, Nanoseconds from, Nanoseconds to) {
    PipelineAct wait{.op = Op::all_reduce_wait, .stage = start.stage};
    wait.called = wait.start = from;
    wait.returned = wait.end = to;
    wait.reduction = start.reduction;
    return wait;
  }

  /// Reads sums inside a backward that no range begins. The backward waits for them at its end, so on the
  /// host it computes until the last one is called.
  void read_inside(std::size_t backward, const std::vector<const Sum*>& sums) {
    PipelineAct& compute = rank_.acts[backward];
    if (!rank_.device) {
      for (const Sum* sum : sums) {
        if (sum->end > sum->returned) compute.end = std::min(compute.end, sums.back()->returned);
      }
    }
    const Nanoseconds after = rank_.device ? compute.end : compute.returned;
    for (const Sum* sum : sums) {
      PipelineAct start{.op = Op::all_reduce_start, .stage = compute.stage};
      start.called = start.returned = compute.called;
      begin(start, sum);
      added_.push_back(start);
      added_.push_back(wait_for(start, compute.returned, std::max(after, compute.returned)));
      added_.back().start = compute.end;
      added_.back().end = after;
    }
  }

  /// Puts the acts in the order of their calls, and starts before the compute around them.
  void order_acts() {
    for (PipelineAct& act : rank_.acts) {
      if (act.op != Op::all_reduce_start) continue;
      for (const PipelineAct& compute : rank_.acts) {
        if (is_compute(compute.op) && compute.called <= act.called && act.called < compute.returned)
          act.called = act.start = act.end = compute.called;
      }
    }
    rank_.acts.insert(rank_.acts.end(), added_.begin(), added_.end());
    const auto place = [](const PipelineAct& act) {
      return std::tuple(act.called, act.op != Op::all_reduce_start, act.op != Op::all_reduce_wait);
    };
    std::ranges::stable_sort(rank_.acts, {}, place);
  }

  PipelineRecord& record_;
  const std::size_t number_;
  PipelineRank& rank_;
  const KinetoTrace& trace_;
  std::vector<Sum> sums_;
  std::vector<PipelineAct> added_;
};

/// Sums of one rank run one after the other: time in which two overlap counts for the first.
void separate(PipelineRecord& record) {
  std::vector<PipelineReduction*> in_time;
  for (PipelineReduction& reduction : record.reductions) in_time.push_back(&reduction);
  std::ranges::stable_sort(in_time, {}, &PipelineReduction::start);
  std::vector<Nanoseconds> free(record.ranks.size(), Nanoseconds::min());
  for (PipelineReduction* reduction : in_time) {
    reduction->start = std::max(reduction->start, free[reduction->rank]);
    reduction->end = std::max(reduction->end, reduction->start);
    free[reduction->rank] = reduction->end;
  }
}

/// Returns the global ranks that have a stage.
std::vector<std::int32_t> ranks_of_stage(const PipelineRecord& record, std::int32_t stage) {
  std::vector<std::int32_t> ranks;
  for (const PipelineRank& rank : record.ranks) {
    const bool has = std::ranges::any_of(
        rank.acts, [&](const PipelineAct& act) { return is_compute(act.op) && act.stage == stage; });
    if (has) ranks.push_back(*record.trace_of(rank).rank);
  }
  return ranks;
}

/// Returns the global ranks that take part in a sum, ascending.
std::vector<std::int32_t> participants_of(const PipelineRecord& record, const PipelineReduction& reduction) {
  if (!reduction.message) {
    return reduction.participants.empty() ? ranks_of_stage(record, reduction.stage) : reduction.participants;
  }
  std::set<std::int32_t> ranks;
  for (const PipelineReduction& other : record.reductions) {
    if (other.message == reduction.message) ranks.insert(*record.trace_of(record.ranks[other.rank]).rank);
  }
  return {ranks.begin(), ranks.end()};
}

/// Tells whether a trace lists no process groups, or a group of exactly these ranks.
bool knows_group(const KinetoTrace& trace, const std::vector<std::int32_t>& ranks) {
  if (trace.process_groups.empty()) return true;
  return std::ranges::any_of(trace.process_groups, [&](std::vector<std::int32_t> group) {
    std::ranges::sort(group);
    return group == ranks;
  });
}

/// Checks that all ranks of a sum have it, with equal bytes.
void check_sum(PipelineRecord& record, const std::vector<std::int32_t>& expected,
               const std::vector<std::size_t>& parts) {
  const PipelineReduction& first = record.reductions[parts.front()];
  const PipelineRank& rank = record.ranks[first.rank];
  const auto refuse = [&](const std::string& why) {
    record.add(Finding::missing_collective, rank, first.event, "all_reduce",
               fmt::format("reduction of stage {}: {}", first.stage, why));
  };
  if (parts.size() != expected.size()) {
    refuse(fmt::format("expected it on the ranks {}, found it on {} of them", fmt::join(expected, ", "),
                       parts.size()));
    return;
  }
  if (!knows_group(record.trace_of(rank), expected)) {
    refuse(fmt::format("expected a process group of the ranks {} that have the stage, found none",
                       fmt::join(expected, ", ")));
    return;
  }
  for (const std::size_t part : parts) {
    const PipelineReduction& other = record.reductions[part];
    if (!first.bytes || !other.bytes || *first.bytes == *other.bytes) continue;
    refuse(fmt::format("expected {} bytes on all of its ranks, as here, found {} in {}", first.bytes->count,
                       other.bytes->count, record.trace_of(record.ranks[other.rank]).file));
    return;
  }
}

}  // namespace

void read_reductions(PipelineRecord& record) {
  for (std::size_t r = 0; r < record.ranks.size(); ++r) ReductionReader(record, r).run();
  separate(record);
}

void join_reductions(PipelineRecord& record) {
  using Key =
      std::tuple<std::vector<std::int32_t>, std::int32_t, std::int32_t>;  // ranks, stage, how many before;
                                                                          // ranks, -1, its number
  std::map<Key, std::vector<std::size_t>> joined;
  std::map<std::pair<std::size_t, std::int32_t>, std::int32_t> seen;  // by rank and stage
  for (std::size_t i = 0; i < record.reductions.size(); ++i) {
    const PipelineReduction& reduction = record.reductions[i];
    const std::vector<std::int32_t> ranks = participants_of(record, reduction);
    if (ranks.size() < 2) continue;
    const Key key = reduction.message
                        ? Key{ranks, -1, *reduction.message}
                        : Key{ranks, reduction.stage, seen[{reduction.rank, reduction.stage}]++};
    joined[key].push_back(i);
  }
  std::int32_t next = 0;
  for (const auto& [key, parts] : joined) {
    check_sum(record, std::get<0>(key), parts);
    for (const std::size_t part : parts) record.reductions[part].number = next;
    ++next;
  }
}

}  // namespace dflop
