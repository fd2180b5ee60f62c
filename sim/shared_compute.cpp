#include "sim/shared_compute.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

namespace dflop {
namespace {

constexpr Nanoseconds kNever = Nanoseconds::max();

/// Sums of bandwidth fractions are not exact, so they are compared with this.
constexpr double kAll = 1 + 1e-12;

/// Returns when `work` nanoseconds of work that begin at `start` are done, to the nearest nanosecond.
Nanoseconds after(Nanoseconds start, double work, double rate) {
  return start + Nanoseconds(static_cast<std::int64_t>(std::max(0.0, work) / rate + 0.5));
}

}  // namespace

SharedCompute::SharedCompute(const Program& program, const Conditions& conditions)
    : conditions_(conditions), computations_(program.groups.size()), heap_(computations_) {
  find_clusters(program);
}

/// Forms clusters of the groups of both modules that have GPUs in common. Ranks of a module are in order of
/// GPU, so walking the GPUs finds every pair of groups.
void SharedCompute::find_clusters(const Program& program) {
  const auto groups = static_cast<std::int32_t>(program.groups.size());
  const auto gpus = static_cast<std::size_t>(program.shared_gpus);
  std::vector<std::array<std::int32_t, 2>> on_gpu(gpus, {-1, -1});  // of the encoder, of the LLM
  for (std::int32_t g = 0; g < groups; ++g) {
    const Group& group = program.groups[g];
    const int first = program.first_device(group);
    const std::size_t module = group.first_rank >= program.shared_gpus ? 1 : 0;
    for (int d = first; d < first + group.ranks; ++d) on_gpu[d][module] = g;
  }
  std::vector<std::int32_t> leader(groups);
  std::iota(leader.begin(), leader.end(), 0);
  const auto leader_of = [&](std::int32_t g) {
    while (leader[g] != g) g = leader[g] = leader[leader[g]];
    return g;
  };
  std::vector<std::array<std::int32_t, 2>> pairs;
  for (const auto& pair : on_gpu) {
    if (pair[0] < 0 || pair[1] < 0 || (!pairs.empty() && pairs.back() == pair)) continue;
    pairs.push_back(pair);
    leader[std::max(leader_of(pair[0]), leader_of(pair[1]))] =
        std::min(leader_of(pair[0]), leader_of(pair[1]));
  }
  cluster_of_.assign(groups, -1);
  std::int32_t clusters = 0;
  for (std::int32_t g = 0; g < groups; ++g) {
    const std::int32_t first = leader_of(g);  // not after g
    cluster_of_[g] = first == g ? clusters++ : cluster_of_[first];
  }
  members_.resize(groups);
  std::iota(members_.begin(), members_.end(), 0);
  std::ranges::stable_sort(members_, {}, [&](std::int32_t g) { return cluster_of_[g]; });
  std::ranges::stable_sort(pairs, {}, [&](const auto& pair) { return cluster_of_[pair[0]]; });
  pairs_ = std::move(pairs);
  for (std::int32_t c = 0; c <= clusters; ++c) {
    const auto before = [&](std::int32_t g) { return cluster_of_[g] < c; };
    first_member_.push_back(std::ranges::partition_point(members_, before) - members_.begin());
    first_pair_.push_back(
        std::ranges::partition_point(pairs_, [&](const auto& pair) { return before(pair[0]); }) -
        pairs_.begin());
  }
  is_disturbed_.assign(clusters, 0);
}

void SharedCompute::start(std::int32_t group, Nanoseconds amount, double bandwidth, Nanoseconds now) {
  now_ = now;
  Computation& one = computations_[group];
  one.runs = true;
  one.paused = false;
  one.bandwidth = bandwidth;
  one.rate = 0;
  one.left = static_cast<double>(amount.count());
  one.since = one.started = one.event = now;
  one.paused_for = Nanoseconds(0);
  one.number = started_++;
  one.entered = 0;
  one.entries.clear();
  one.queued = false;  // stays false until its rate is known, so that it moves in the heap only once
  ++running_;
  if (!conditions_.pauses.empty()) stand_still_or_go_on(group, true);
  disturb(group);
}

void SharedCompute::add_entry(std::int32_t group, Nanoseconds amount, std::int64_t entry) {
  Computation& one = computations_[group];
  one.entries.push_back({one.left - static_cast<double>(amount.count()), entry});
}

Nanoseconds SharedCompute::next_time() {
  settle();
  return computations_[heap_.top()].event;
}

SharedCompute::Happening SharedCompute::advance() {
  settle();
  const std::int32_t group = heap_.top();
  Computation& one = computations_[group];
  now_ = one.event;
  switch (one.next) {
    case What::nothing:
      stand_still_or_go_on(group, false);
      disturb(group);
      return {What::nothing, group, 0, {}};
    case What::enters: {
      const std::int64_t entry = one.entries[one.entered++].entry;
      set_event(group);
      return {What::enters, group, entry, {}};
    }
    case What::ends:
    case What::fails:
      return remove(one.next, group);
  }
  return {};
}

SharedCompute::Happening SharedCompute::remove(What what, std::int32_t group) {
  Computation& one = computations_[group];
  heap_.pop();
  --running_;
  if (one.paused) one.paused_for += now_ - one.since;
  one.runs = false;
  disturb(group);
  return {what, group, 0, now_ - one.started - one.paused_for};
}

void SharedCompute::disturb(std::int32_t group) {
  const std::int32_t cluster = cluster_of_[group];
  if (is_disturbed_[cluster] != 0) return;
  is_disturbed_[cluster] = 1;
  disturbed_.push_back(cluster);
}

/// Updates the rates after computations have started or ended.
void SharedCompute::settle() {
  for (const std::int32_t cluster : disturbed_) {
    is_disturbed_[cluster] = 0;
    const std::span members(members_.data() + first_member_[cluster],
                            members_.data() + first_member_[cluster + 1]);
    const bool contended = is_contended(cluster);
    if (contended) share_out(cluster);
    for (const std::int32_t group : members) {
      const Computation& one = computations_[group];
      if (!one.runs || one.paused) continue;
      set_rate(group, contended && one.bandwidth > 0 ? one.part / one.bandwidth : 1.0);
    }
  }
  disturbed_.clear();
}

/// Returns whether computations ask for more bandwidth of some GPU in the cluster than it has.
bool SharedCompute::is_contended(std::int32_t cluster) const {
  for (std::size_t p = first_pair_[cluster]; p < first_pair_[cluster + 1]; ++p) {
    if (wanted(pairs_[p][0]) + wanted(pairs_[p][1]) > kAll) return true;
  }
  return false;
}

/// Sets the bandwidth fractions of the computations of one pair of groups.
void SharedCompute::share_out(const std::array<std::int32_t, 2>& pair) {
  Computation& a = computations_[pair[0]];
  Computation& b = computations_[pair[1]];
  a.part = std::min(a.bandwidth, std::max(0.5, 1 - b.bandwidth));
  b.part = std::min(b.bandwidth, std::max(0.5, 1 - a.bandwidth));
}

/// Sets the bandwidth fraction of each computation of a cluster, by progressive filling.
void SharedCompute::share_out(std::int32_t cluster) {
  if (first_pair_[cluster] + 1 == first_pair_[cluster + 1]) return share_out(pairs_[first_pair_[cluster]]);
  constexpr double kUnsettled = -1;
  const std::span members(members_.data() + first_member_[cluster],
                          members_.data() + first_member_[cluster + 1]);
  const std::span pairs(pairs_.data() + first_pair_[cluster], pairs_.data() + first_pair_[cluster + 1]);
  std::size_t left = 0;
  for (const std::int32_t group : members) {
    Computation& one = computations_[group];
    one.part = wanted(group) > 0 ? kUnsettled : 0;
    left += wanted(group) > 0 ? 1 : 0;
  }
  const auto is_open = [&](std::int32_t group) { return computations_[group].part == kUnsettled; };
  const auto give = [&](std::int32_t group, double part) {
    computations_[group].part = part;
    --left;
  };
  while (left > 0) {
    double share = std::numeric_limits<double>::infinity();
    const std::array<std::int32_t, 2>* tightest = nullptr;
    for (const auto& pair : pairs) {
      const int open = (is_open(pair[0]) ? 1 : 0) + (is_open(pair[1]) ? 1 : 0);
      if (open == 0) continue;
      double spare = 1;
      for (const std::int32_t group : pair) spare -= is_open(group) ? 0 : computations_[group].part;
      if (spare / open < share) share = spare / open, tightest = &pair;
    }
    bool limited = false;  // by what they ask for
    for (const std::int32_t group : members) {
      if (!is_open(group) || computations_[group].bandwidth > share) continue;
      give(group, computations_[group].bandwidth);
      limited = true;
    }
    if (limited) continue;
    for (const std::int32_t group : *tightest) {
      if (is_open(group)) give(group, share);
    }
  }
}

/// Sets the rate of a computation that is not paused.
void SharedCompute::set_rate(std::int32_t group, double rate) {
  Computation& one = computations_[group];
  if (rate == one.rate) return;
  one.left = std::max(0.0, one.left - one.rate * static_cast<double>((now_ - one.since).count()));
  one.since = now_;
  one.rate = rate;
  set_event(group);
}

/// Sets the next event of a computation whose rate is known. The computation's own events come before its
/// group's pauses at the same time.
void SharedCompute::set_event(std::int32_t group) {
  Computation& one = computations_[group];
  one.event = conditions_.pauses.empty() ? kNever : next_change(group);
  one.next = What::nothing;
  if (!one.paused) {
    const Nanoseconds end = after(one.since, one.left, one.rate);
    if (end <= one.event) one.event = end, one.next = What::ends;
    if (one.entered < one.entries.size()) {
      const Nanoseconds enters = after(one.since, one.left - one.entries[one.entered].left, one.rate);
      if (enters <= one.event) one.event = std::max(enters, now_), one.next = What::enters;
    }
  }
  queue(group);
}

/// Moves a computation to its event's position in the heap.
void SharedCompute::queue(std::int32_t group) {
  if (std::exchange(computations_[group].queued, true)) {
    heap_.update(group);
  } else {
    heap_.push(group);
  }
}

/// Pauses or resumes a group's computation that begins now, or when a pause begins or ends. A computation
/// that takes no time ends before a pause that begins at the same time; see run_compute().
void SharedCompute::stand_still_or_go_on(std::int32_t group, bool begins) {
  Computation& one = computations_[group];
  const bool takes_none = begins && one.left == 0;
  bool paused = false;
  bool fails = false;
  for (const Pause& pause : conditions_.pauses) {
    if (pause.group != group || pause.start > now_ || (takes_none && pause.start == now_)) continue;
    fails = fails || pause.duration == Pause::kForever;
    paused = paused || fails || pause.start + pause.duration > now_;
  }
  if (one.paused) {
    one.paused_for += now_ - one.since;
  } else {
    one.left = std::max(0.0, one.left - one.rate * static_cast<double>((now_ - one.since).count()));
  }
  one.since = now_;
  one.paused = paused;
  one.rate = 0;
  if (fails) {
    one.event = now_;
    one.next = What::fails;
    queue(group);
  } else if (paused) {
    set_event(group);
  }
}

/// Returns when the group's next pause begins or ends.
Nanoseconds SharedCompute::next_change(std::int32_t group) const {
  Nanoseconds next = kNever;
  for (const Pause& pause : conditions_.pauses) {
    if (pause.group != group) continue;
    if (pause.start > now_) next = std::min(next, pause.start);
    if (pause.duration == Pause::kForever) continue;
    if (pause.start + pause.duration > now_) next = std::min(next, pause.start + pause.duration);
  }
  return next;
}

}  // namespace dflop
