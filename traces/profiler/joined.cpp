#include "traces/profiler/joined.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "traces/profiler/usage.hpp"

namespace dflop {
namespace {

/// Times are rounded, so an event that begins when another ends may seem to begin this much earlier.
constexpr Nanoseconds kSameInstant{2'000};

/// A RankPlace is a point at which a rank enters a collective or waits for one. Times count from the rank's
/// begin of the step.
struct RankPlace {
  std::int32_t collective = 0;
  bool waits = false;
  Nanoseconds from{0};  ///< begin of a wait, or time of entry
  Nanoseconds to{0};
};

/// A Joined is a collective of a step, matched over its ranks.
struct Joined {
  std::vector<std::size_t> ranks;          ///< indices into the step's ranks, rising
  std::size_t queue = 0;                   ///< all collectives of the same ranks share one queue
  Nanoseconds start = Nanoseconds::min();  ///< latest over the ranks, on the common clock
  Nanoseconds end = Nanoseconds::min();    ///< latest over the ranks
  Nanoseconds transfer = Nanoseconds::max();
  Bytes bytes;
  std::string operation;
  std::set<std::int32_t> after;  ///< collectives of other queues that must end before it begins
};

/// A RankStep is one rank's activity in a step.
struct RankStep {
  std::size_t trace = 0;
  KinetoWindow window;
  std::vector<std::pair<Nanoseconds, Nanoseconds>> busy = {};  ///< rising, apart; kernels and copies
  std::optional<Nanoseconds> optimizer = {};                   ///< start of its first kernel
  std::vector<RankPlace> places = {};
  Nanoseconds computes{0};
  Nanoseconds waits{0};

  Nanoseconds length() const { return window.end - window.begin; }
};

/// Returns the windows of a trace. A gap between two steps belongs to the later one: the rank starts that
/// step late, as its data do, and a shorter earlier step does not shorten the gap.
std::vector<KinetoWindow> windows_of(const KinetoTrace& trace) {
  std::vector<KinetoWindow> windows = device_windows(trace);
  std::map<std::int32_t, Nanoseconds> ends;
  for (const KinetoActivity& activity : trace.activities) {
    const auto [end, fresh] = ends.try_emplace(activity.step, activity.end());
    end->second = std::max(end->second, activity.end());
  }
  for (std::size_t w = 1; w < windows.size(); ++w) {
    KinetoWindow& before = windows[w - 1];
    before.end = std::clamp(ends.at(before.step), before.begin, windows[w].begin);
    windows[w].begin = before.end;
  }
  return windows;
}

/// Tells whether the relative clocks of all ranks are known.
bool knows_clocks(const KinetoRanks& ranks, const std::vector<RankStep>& step) {
  return std::ranges::none_of(
      step, [&](const RankStep& rank) { return rank.trace > 0 && ranks.clocks[rank.trace].matches == 0; });
}

/// Returns when the last rank ends a step, on the common clock.
Nanoseconds latest_end(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                       const std::vector<RankStep>& step) {
  Nanoseconds latest = Nanoseconds::min();
  for (const RankStep& rank : step)
    latest = std::max(latest, ranks.aligned(traces, rank.trace, rank.window.end));
  return latest;
}

/// Makes the first step, before which the ranks' activity is unknown, begin for all ranks when the first of
/// them begins, if their clocks are known and their steps are at the same time.
void begin_together(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks,
                    std::vector<RankStep>& step) {
  if (!knows_clocks(ranks, step)) return;
  const auto begin = [&](const RankStep& rank) {
    return ranks.aligned(traces, rank.trace, rank.window.begin);
  };
  Nanoseconds first = Nanoseconds::max();
  for (const RankStep& rank : step) first = std::min(first, begin(rank));
  for (const RankStep& rank : step) {
    const auto ends_before = [&](const RankStep& other) {
      return begin(other) + other.length() < begin(rank);
    };
    if (std::ranges::any_of(step, ends_before)) return;
  }
  for (RankStep& rank : step) rank.window.begin -= begin(rank) - first;
}

/// Returns the time since the rank's begin of the step, clamped to the step.
Nanoseconds inside(const RankStep& rank, Nanoseconds time) {
  return std::clamp(time - rank.window.begin, Nanoseconds(0), rank.length());
}

void add_busy(RankStep& rank, Nanoseconds begin, Nanoseconds end) {
  if (!rank.busy.empty() && begin <= rank.busy.back().second) {
    rank.busy.back().second = std::max(rank.busy.back().second, end);
  } else if (begin < end) {
    rank.busy.emplace_back(begin, end);
  }
}

/// Adds the times at which kernels and copies of the rank run in its window.
void add_activities(const KinetoTrace& trace, RankStep& rank) {
  for (const KinetoActivity& activity : trace.activities) {
    if (activity.step != rank.window.step || activity.work == KinetoWork::communication) continue;
    add_busy(rank, inside(rank, activity.start), inside(rank, activity.end()));
    if (activity.phase == KinetoPhase::optimizer && !rank.optimizer)
      rank.optimizer = inside(rank, activity.start);
  }
}

/// Returns the size of an all-reduce that moves as many bytes.
Bytes as_all_reduce(const KinetoCollective& collective) {
  const Bytes bytes = collective.bytes().value_or(Bytes{0});
  std::string name;
  for (const char c : collective.name) {
    if (c != '_') name += c;
  }
  return name.find("allreduce") != std::string::npos ? bytes : Bytes{bytes.count / 2};
}

/// A JoinedStep makes the timeline of one step.
class JoinedStep {
 public:
  /// `most`: max duration of the step; none: the duration of its longest rank.
  JoinedStep(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks, std::vector<RankStep> step,
             std::optional<Nanoseconds> most)
      : traces_(traces), ranks_(ranks), step_(std::move(step)), most_(most) {}

  Timeline run() {
    join();
    find_chains();
    for (std::size_t r = 0; r < step_.size(); ++r) find_places(r);
    lay_out();
    return std::move(timeline_);
  }

 private:
  struct Kernel {
    std::size_t rank = 0;
    const KinetoActivity* activity = nullptr;
  };

  Nanoseconds aligned(std::size_t rank, Nanoseconds time) const {
    return ranks_.aligned(traces_, step_[rank].trace, time);
  }

  /// Finds the collectives of the step in the order of their ends, which is the same on all ranks.
  void join() {
    std::map<std::size_t, std::vector<Kernel>> by_exchange;
    for (std::size_t r = 0; r < step_.size(); ++r) {
      const KinetoTrace& trace = traces_[step_[r].trace];
      for (std::size_t c = 0; c < trace.collectives.size(); ++c) {
        const KinetoActivity& activity = trace.activities[trace.collectives[c].activity];
        if (activity.step == step_[r].window.step)
          by_exchange[ranks_.shares[step_[r].trace][c].exchange].push_back({r, &activity});
      }
    }
    for (auto& [exchange, kernels] : by_exchange) {
      Joined joined;
      for (const Kernel& kernel : kernels) {
        const KinetoActivity& activity = *kernel.activity;
        joined.ranks.push_back(kernel.rank);
        joined.start = std::max(joined.start, aligned(kernel.rank, activity.start));
        joined.end = std::max(joined.end, aligned(kernel.rank, activity.end()));
        joined.transfer = std::min(joined.transfer, activity.duration);
        const KinetoCollective& c = traces_[step_[kernel.rank].trace].collectives[activity.collective];
        joined.bytes = std::max(joined.bytes, as_all_reduce(c));
        joined.operation = c.name;
      }
      found_.emplace_back(std::move(joined), std::move(kernels));
    }
    std::stable_sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.end, a.first.start) < std::pair(b.first.end, b.first.start);
    });
    std::vector<Nanoseconds> ended;  // by queue
    for (auto& [joined, kernels] : found_) {
      joined.queue = queues_.try_emplace(joined.ranks, queues_.size()).first->second;
      ended.resize(queues_.size(), Nanoseconds::min());
      // An overlapping collective on another stream already counts its own time.
      Nanoseconds& before = ended[joined.queue];
      if (before > joined.start)
        joined.transfer = std::max(Nanoseconds(0), std::min(joined.transfer, joined.end - before));
      before = joined.end;
    }
  }

  /// Returns the rank's kernel for a collective; null if it has none.
  const KinetoActivity* kernel_of(std::size_t rank, std::size_t collective) const {
    for (const Kernel& kernel : found_[collective].second) {
      if (kernel.rank == rank) return kernel.activity;
    }
    return nullptr;
  }

  /// Returns the rank's collectives with its kernels for them.
  std::vector<std::pair<std::int32_t, const KinetoActivity*>> collectives_of(std::size_t r) const {
    std::vector<std::pair<std::int32_t, const KinetoActivity*>> own;
    for (std::size_t c = 0; c < found_.size(); ++c) {
      if (const KinetoActivity* kernel = kernel_of(r, c))
        own.emplace_back(static_cast<std::int32_t>(c), kernel);
    }
    return own;
  }

  /// A GroupKind is the common property of process groups with one purpose: the number of ranks, and the
  /// distance between them.
  using GroupKind = std::pair<std::size_t, std::size_t>;

  static GroupKind kind_of(const Joined& joined) {
    const std::vector<std::size_t>& ranks = joined.ranks;
    return {ranks.size(), ranks.size() > 1 ? ranks[1] - ranks[0] : 0};
  }

  /// A Chain counts, on all ranks, how the collectives of one kind of groups begin relative to the ends of
  /// another kind's collectives that were launched before them.
  struct Chain {
    std::size_t follow = 0;  ///< begin at that end, and not when the previous one in their queue ends
    std::size_t later = 0;   ///< begin later than both
    bool is_broken = false;  ///< one begins earlier
    std::vector<std::pair<std::int32_t, std::int32_t>>
        links;  ///< a collective, and the one after which it comes
  };

  /// Finds kinds of groups whose collectives begin at the ends of others' on all ranks, such as the
  /// all-reduces of HSDP after its reduce-scatters. A pattern in most of them is an order; in a few it may be
  /// chance.
  void find_chains() {
    std::map<std::pair<GroupKind, GroupKind>, Chain> chains;  // by preceding and following kind
    for (std::size_t r = 0; r < step_.size(); ++r) {
      auto own = collectives_of(r);
      std::ranges::stable_sort(own, {}, [&](const auto& entry) {
        return std::pair(launch_of(r, *entry.second), entry.second->start);
      });
      std::map<std::size_t, std::pair<std::int32_t, Nanoseconds>> last;  // by queue
      for (const auto& [c, kernel] : own) {
        const std::size_t queue = found_[c].first.queue;
        const auto before = last.find(queue);
        const Nanoseconds free = before == last.end() ? Nanoseconds::min() : before->second.second;
        for (const auto& [other, entry] : last) {
          if (other == queue) continue;
          const auto& [first, end] = entry;
          Chain& chain = chains[{kind_of(found_[first].first), kind_of(found_[c].first)}];
          chain.links.emplace_back(c, first);
          if (kernel->start < end - kSameInstant) chain.is_broken = true;
          if (kernel->start > std::max(free, end) + kMinJoinedWait) {
            ++chain.later;
          } else if (free <= end + kMinJoinedWait) {
            ++chain.follow;
          }
        }
        last[queue] = {c, kernel->end()};
      }
    }
    for (const auto& [kinds, chain] : chains) {
      if (chain.is_broken || chain.follow < 2 || chain.later >= chain.follow) continue;
      // Collectives are numbered by their ends, so links only to higher numbers cannot form a cycle.
      for (const auto& [c, first] : chain.links) {
        if (first < c) found_[c].first.after.insert(first);
      }
    }
  }

  Nanoseconds launch_of(std::size_t r, const KinetoActivity& kernel) const {
    return kernel.launch < 0 ? kernel.start : traces_[step_[r].trace].launches[kernel.launch].start;
  }

  void find_places(std::size_t r) {
    RankStep& rank = step_[r];
    const auto own = collectives_of(r);
    const HostPace host(traces_[rank.trace], rank.window.step);
    std::set<std::int32_t> waited = add_waits(rank, host, own);
    if (rank.optimizer) {
      for (const auto& [c, kernel] : own) {
        const Nanoseconds end = inside(rank, kernel->end());
        if (end <= *rank.optimizer + kSameInstant && waited.insert(c).second)
          rank.places.push_back({c, true, *rank.optimizer, *rank.optimizer});
      }
    }
    for (const auto& [c, kernel] : own) {
      if (waited.insert(c).second) rank.places.push_back({c, true, rank.length(), rank.length()});
    }
    add_entries(traces_[rank.trace], rank, own);
    // At equal times a rank enters before it waits, and both follow the order of the collectives.
    std::stable_sort(rank.places.begin(), rank.places.end(), [](const RankPlace& a, const RankPlace& b) {
      return std::tuple(a.from, a.waits, a.waits ? a.to : Nanoseconds(0), a.collective) <
             std::tuple(b.from, b.waits, b.waits ? b.to : Nanoseconds(0), b.collective);
    });
  }

  /// Returns when the rank enters each of its collectives: when the kernel starts. If the kernel comes right
  /// after another collective on its stream, or after one that it must follow, it may have been queued: then
  /// the entry is when everything launched before it is computed.
  std::vector<Nanoseconds> ready_times(
      const KinetoTrace& trace, const RankStep& rank,
      const std::vector<std::pair<std::int32_t, const KinetoActivity*>>& own) const {
    std::vector<std::pair<Nanoseconds, Nanoseconds>> computed;  // launch, and the latest end so far
    for (const KinetoActivity& activity : trace.activities) {
      if (activity.step == rank.window.step && activity.work == KinetoWork::compute && activity.launch >= 0)
        computed.emplace_back(trace.launches[activity.launch].start, activity.end());
    }
    std::sort(computed.begin(), computed.end());
    for (std::size_t k = 1; k < computed.size(); ++k)
      computed[k].second = std::max(computed[k].second, computed[k - 1].second);
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Nanoseconds>> ends;  // by stream, rising
    for (const auto& [c, kernel] : own) ends[{kernel->device, kernel->stream}].push_back(kernel->end());
    for (auto& [stream, times] : ends) std::sort(times.begin(), times.end());
    std::vector<Nanoseconds> ready;
    for (const auto& [c, kernel] : own) {
      ready.push_back(kernel->start);
      const std::vector<Nanoseconds>& times = ends[{kernel->device, kernel->stream}];
      const auto after = std::upper_bound(times.begin(), times.end(), kernel->start + kMinJoinedWait);
      const bool queues = !found_[c].first.after.empty() ||
                          (after != times.begin() && *std::prev(after) + kMinJoinedWait >= kernel->start);
      if (!queues || kernel->launch < 0) continue;
      const auto later =
          std::lower_bound(computed.begin(), computed.end(),
                           std::pair(trace.launches[kernel->launch].start, Nanoseconds::min()));
      const Nanoseconds all = later == computed.begin() ? rank.window.begin : std::prev(later)->second;
      ready.back() = std::min(ready.back(), all);
    }
    return ready;
  }

  /// Adds the entries, in the order of the collectives of a queue, and none after the wait for it, which
  /// slightly misaligned clocks could cause.
  void add_entries(const KinetoTrace& trace, RankStep& rank,
                   const std::vector<std::pair<std::int32_t, const KinetoActivity*>>& own) const {
    std::map<std::int32_t, Nanoseconds> wait_begins;
    for (const RankPlace& place : rank.places) wait_begins[place.collective] = place.from;
    const std::vector<Nanoseconds> ready = ready_times(trace, rank, own);
    std::vector<Nanoseconds> entries;
    std::vector<Nanoseconds> earliest(queues_.size(), Nanoseconds(0));
    for (std::size_t i = 0; i < own.size(); ++i) {
      Nanoseconds& least = earliest[found_[own[i].first].first.queue];
      least = std::max(least, inside(rank, ready[i]));
      entries.push_back(least);
    }
    std::vector<Nanoseconds> latest(queues_.size(), rank.length());
    for (std::size_t i = own.size(); i-- > 0;) {
      Nanoseconds& most = latest[found_[own[i].first].first.queue];
      most = std::min(most, wait_begins.at(own[i].first));
      entries[i] = std::min(entries[i], most);
    }
    std::vector<RankPlace> places;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Nanoseconds time = entry_outside_waits(rank, entries[i]);
      places.push_back({own[i].first, false, time, time});
    }
    rank.places.insert(rank.places.end(), places.begin(), places.end());
  }

  /// A HostPace tells whether a kernel started late because its host launched it late.
  class HostPace {
   public:
    HostPace(const KinetoTrace& trace, std::int32_t step) {
      for (const KinetoActivity& activity : trace.activities) {
        if (activity.step == step && activity.work == KinetoWork::compute && activity.launch >= 0)
          next_.emplace_back(activity.start, trace.launches[activity.launch].start);
      }
      std::ranges::sort(next_);
      for (const KinetoLaunch& launch : trace.launches) {
        if (launch.waits) syncs_.push_back(&launch);
      }
    }

    /// Tells whether the next kernel after a time was launched after that time, by a host that was not
    /// waiting for the device: a collective that ended at that time delayed nothing.
    bool is_behind(Nanoseconds time) const {
      const auto next = std::ranges::lower_bound(next_, std::pair(time - kSameInstant, Nanoseconds::min()));
      if (next == next_.end() || next->second <= time + kSameInstant) return false;
      return std::ranges::none_of(syncs_, [&](const KinetoLaunch* sync) {
        return sync->start <= time && time <= sync->end + kMinJoinedWait;
      });
    }

   private:
    std::vector<std::pair<Nanoseconds, Nanoseconds>> next_;  ///< start on the device and launch, rising
    std::vector<const KinetoLaunch*> syncs_;
  };

  /// Adds the waits in gaps between kernels, and returns the collectives that they wait for.
  static std::set<std::int32_t> add_waits(
      RankStep& rank, const HostPace& host,
      const std::vector<std::pair<std::int32_t, const KinetoActivity*>>& own) {
    struct Ending {
      std::int32_t collective;
      const KinetoActivity* kernel;
      Nanoseconds gap;
      Nanoseconds end;
    };
    std::vector<Ending> endings;  // those in gaps
    auto by_end = own;
    // If two collectives end together, compute waits for the one that was launched first.
    std::stable_sort(by_end.begin(), by_end.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second->end(), -a.second->launch) < std::pair(b.second->end(), -b.second->launch);
    });
    for (const auto& [c, kernel] : by_end) {
      const Nanoseconds end = inside(rank, kernel->end());
      // The gap begins at the end of the last kernel that started before the collective's end.
      const auto next =
          std::lower_bound(rank.busy.begin(), rank.busy.end(), end - kSameInstant,
                           [](const auto& busy, Nanoseconds time) { return busy.first < time; });
      const Nanoseconds gap = next == rank.busy.begin() ? Nanoseconds(0) : std::prev(next)->second;
      if (end - std::max(gap, inside(rank, kernel->start)) >= kMinJoinedWait &&
          !host.is_behind(kernel->end()))
        endings.push_back({c, kernel, gap, end});
    }
    std::set<std::int32_t> waited;
    Nanoseconds waited_until{0};
    for (std::size_t k = 0; k < endings.size(); ++k) {
      const auto& [c, kernel, gap, end] = endings[k];
      const auto begins_then = [ends = kernel->end()](const auto& other) {
        return std::chrono::abs(other.second->start - ends) <= kMinJoinedWait;
      };
      // A collective that ends in the middle of a gap delays nothing, unless another collective begins then.
      const bool is_last = k + 1 == endings.size() || endings[k + 1].gap != gap;
      if (!is_last && std::ranges::none_of(own, begins_then)) continue;
      const Nanoseconds from = std::max({gap, inside(rank, kernel->start), waited_until});
      if (end - from < kMinJoinedWait) continue;
      rank.places.push_back({c, true, from, end});
      rank.waits += end - from;
      waited_until = end;
      waited.insert(c);
    }
    return waited;
  }

  /// Moves a time inside a wait to the wait's begin, because nothing is computed during a wait. A time at the
  /// wait's end stays, because it may depend on what was waited for.
  static Nanoseconds entry_outside_waits(const RankStep& rank, Nanoseconds time) {
    for (const RankPlace& place : rank.places) {
      if (!place.waits || time <= place.from || time > place.to) continue;
      return time >= place.to - kSameInstant ? place.to : place.from;
    }
    return time;
  }

  /// Runs the pieces. Each rank advances from place to place. A collective starts when all ranks have entered
  /// it, and the previous one in its queue and those that it must follow have ended.
  void lay_out() {
    const std::size_t count = step_.size();
    std::vector<Nanoseconds> now(count, Nanoseconds(0));
    std::vector<Nanoseconds> recorded(count, Nanoseconds(0));
    std::vector<Nanoseconds> ended(queues_.size(), Nanoseconds(0));
    std::vector<std::size_t> next(count, 0);
    std::vector<std::vector<std::size_t>> entries(found_.size());  // spans of the ranks that have entered
    std::vector<std::optional<Nanoseconds>> end_of(found_.size());
    std::vector<std::vector<std::int32_t>> waiting(
        queues_.size());  // collectives without end, last one first
    std::map<std::int32_t, std::vector<std::int32_t>> followers;
    timeline_.source = "recorded";
    timeline_.stages = {"model"};
    for (auto c = static_cast<std::int32_t>(found_.size()); c-- > 0;) {
      waiting[found_[c].first.queue].push_back(c);
      for (const std::int32_t before : found_[c].first.after) followers[before].push_back(c);
    }
    for (const auto& [joined, kernels] : found_)
      timeline_.collectives.push_back({joined.operation, {joined.after.begin(), joined.after.end()}});
    const auto can_start = [&](std::int32_t c) {
      const Joined& joined = found_[c].first;
      return entries[c].size() == joined.ranks.size() &&
             std::ranges::all_of(joined.after,
                                 [&](std::int32_t before) { return end_of[before].has_value(); });
    };
    // Starts the collectives of a queue that are ready, and those that follow them.
    const auto start_in = [&](std::size_t queue) {
      for (std::vector<std::size_t> open = {queue}; !open.empty();) {
        std::vector<std::int32_t>& line = waiting[open.back()];
        Nanoseconds& before = ended[open.back()];
        if (line.empty() || !can_start(line.back())) {
          open.pop_back();
          continue;
        }
        const std::int32_t c = line.back();
        line.pop_back();
        for (const std::int32_t other : found_[c].first.after) before = std::max(before, *end_of[other]);
        Nanoseconds start = before;
        for (const std::size_t entry : entries[c]) start = std::max(start, timeline_.spans[entry].start);
        end_of[c] = start + found_[c].first.transfer;
        for (const std::size_t entry : entries[c]) {
          Span& span = timeline_.spans[entry];
          span.start = std::max(span.start, before);
          span.duration = *end_of[c] - span.start;
        }
        before = *end_of[c];
        for (const std::int32_t follower : followers[c]) open.push_back(found_[follower].first.queue);
      }
    };
    const auto enter = [&](std::size_t r, std::int32_t c) {
      entries[c].push_back(timeline_.spans.size());
      add(r, Op::all_reduce_start, Stream::collective, now[r], Nanoseconds(0), c, found_[c].first.bytes);
      start_in(found_[c].first.queue);
    };
    // Advances to the next wait for an unfinished collective, and returns whether anything was done.
    const auto advance = [&](std::size_t r) {
      const std::vector<RankPlace>& places = step_[r].places;
      const std::size_t first = next[r];
      for (; next[r] < places.size(); ++next[r]) {
        const RankPlace& place = places[next[r]];
        if (place.from > recorded[r]) compute(r, now[r], place.from - recorded[r]);
        recorded[r] = std::max(recorded[r], place.from);
        if (!place.waits) {
          enter(r, place.collective);
          continue;
        }
        if (!end_of[place.collective]) break;
        recorded[r] = std::max(recorded[r], place.to);
        const Nanoseconds end = std::max(now[r], *end_of[place.collective]);
        add(r, Op::all_reduce_wait, Stream::collective, now[r], end - now[r], place.collective);
        now[r] = end;
      }
      return next[r] > first;
    };
    // Ranks that wait for each other, which no real run does, keep spans that no replay accepts.
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t r = 0; r < count; ++r) moves = advance(r) || moves;
    }
    for (std::size_t r = 0; r < count; ++r) {
      if (step_[r].length() > recorded[r]) compute(r, now[r], step_[r].length() - recorded[r]);
      add_group(r);
    }
  }

  void compute(std::size_t r, Nanoseconds& now, Nanoseconds duration) {
    add(r, Op::optimizer_step, Stream::compute, now, duration, -1);
    now += duration;
    step_[r].computes += duration;
  }

  void add(std::size_t r, Op op, Stream stream, Nanoseconds start, Nanoseconds duration, std::int32_t message,
           Bytes bytes = {}) {
    Span span;
    span.rank = *traces_[step_[r].trace].rank;
    span.stream = stream;
    span.op = op;
    span.start = start;
    span.duration = duration;
    span.bytes = bytes;
    span.message = message;
    span.position = positions_[r]++;
    timeline_.spans.push_back(span);
  }

  void add_group(std::size_t r) {
    const RankStep& rank = step_[r];
    GroupUsage group;
    group.first_rank = *traces_[rank.trace].rank;
    group.dp_rank = static_cast<std::int32_t>(r);
    group.busy = rank.computes;
    group.wait = rank.waits;
    for (const auto& [joined, kernels] : found_) {
      if (std::find(joined.ranks.begin(), joined.ranks.end(), r) != joined.ranks.end())
        group.transfer += joined.transfer;
    }
    timeline_.makespan = std::max(timeline_.makespan, rank.length());
    timeline_.groups.push_back(group);
    if (r + 1 < step_.size()) return;
    // A rank that ended the previous step early has waited longer than the step took.
    shorten_to(std::min(timeline_.makespan, most_.value_or(timeline_.makespan)), timeline_);
  }

  const std::vector<KinetoTrace>& traces_;
  const KinetoRanks& ranks_;
  std::vector<RankStep> step_;
  std::optional<Nanoseconds> most_;
  std::vector<std::pair<Joined, std::vector<Kernel>>> found_;
  std::map<std::vector<std::size_t>, std::size_t> queues_;  ///< by ranks
  std::map<std::size_t, std::int32_t> positions_;
  Timeline timeline_;
};

}  // namespace

std::optional<std::string> why_not_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks) {
  const auto has_kernels = [](const KinetoTrace& trace) { return !trace.activities.empty(); };
  const auto with_kernels = std::ranges::count_if(traces, has_kernels);
  if (with_kernels < 2) {
    return fmt::format(
        "the waiting time of a rank can be seen only next to other ranks, but there {} with kernels",
        with_kernels == 1 ? "is one trace" : "is no trace");
  }
  for (const KinetoTrace& trace : traces) {
    for (const KinetoCollective& collective : trace.collectives) {
      if (!collective.source && !collective.destination) continue;
      return fmt::format(
          "{} has messages between ranks, and only ranges of a pipeline say where in the step they belong",
          trace.file);
    }
  }
  const auto without = std::ranges::find_if_not(traces, has_kernels);
  if (without != traces.end())
    return fmt::format("{} has no kernels, but a step can be replayed only with all of its ranks",
                       without->file);
  const auto is_joined = [](const KinetoExchange& exchange) { return exchange.ends.size() > 1; };
  if (!std::ranges::any_of(ranks.exchanges, is_joined))
    return "no collective is recorded on two of the ranks";
  return std::nullopt;
}

PipelineImport import_joined(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks) {
  std::vector<std::size_t> order(traces.size());
  for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return *traces[a].rank < *traces[b].rank; });
  std::map<std::int64_t, std::vector<RankStep>> steps;
  for (const std::size_t t : order) {
    for (const KinetoWindow& window : windows_of(traces[t])) {
      const std::int64_t number = window.step < 0 ? 0 : traces[t].steps[window.step].number;
      steps[number].push_back({.trace = t, .window = window});
    }
  }
  bool is_first = true;
  std::optional<std::pair<std::int64_t, Nanoseconds>> before;  // number and end of the previous step
  PipelineImport result;
  for (auto& [number, step] : steps) {
    if (step.size() != traces.size()) continue;
    if (std::exchange(is_first, false)) begin_together(traces, ranks, step);
    // A rank that ended the previous step early waits in this one, which does not make it longer.
    std::optional<Nanoseconds> most;
    if (knows_clocks(ranks, step)) {
      const Nanoseconds end = latest_end(traces, ranks, step);
      if (before && before->first + 1 == number && end > before->second) most = end - before->second;
      before = {number, end};
    }
    for (RankStep& rank : step) add_activities(traces[rank.trace], rank);
    PipelineStep& made = result.steps.emplace_back();
    made.number = number;
    made.timeline = JoinedStep(traces, ranks, std::move(step), most).run();
  }
  return result;
}

}  // namespace dflop
