#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "traces/profiler/pipeline_record.hpp"

namespace dflop {
namespace {

using Finding = KinetoFindingKind;
using Range = KinetoRangeKind;
using Half = PipelineHalf;

/// A receive that ends less than this after its wait begins did not really wait: the wait call itself takes
/// that long.
constexpr Nanoseconds kMinWait{200'000};

bool is_backward(Op op) {
  return op == Op::backward || op == Op::backward_input;
}

/// Returns the direction that a range states; nothing for a range whose neighbors determine it.
std::optional<bool> is_forward(Range kind) {
  if (kind == Range::send_forward || kind == Range::receive_forward) return true;
  if (kind == Range::send_backward || kind == Range::receive_backward) return false;
  return std::nullopt;
}

/// A HalfReader reads the message ends of one rank: from NCCL's kernels if there are any, else from calls on
/// the host, else from ranges.
class HalfReader {
 public:
  HalfReader(PipelineRecord& record, std::size_t rank)
      : record_(record), number_(rank), rank_(record.ranks[rank]), trace_(record.trace_of(rank_)) {}

  void run() {
    for (const KinetoRange* range : rank_.ranges) {
      if (is_send(range->kind) || is_receive(range->kind)) around_.push_back(range);
    }
    for (const PipelineKernel& kernel : rank_.kernels) {
      if (is_message(*kernel.activity)) read_kernel(kernel);
    }
    // NCCL's calls also appear on the host, but their kernels have been read already.
    if (used_.empty() && rank_.halves.empty()) {
      for (const KinetoHostMessage* message : record_.in_step(trace_, trace_.messages)) read_call(*message);
    }
    for (const KinetoRange* range : around_) {
      if (used_.count(range) == 0) read_range(*range);
    }
    std::ranges::stable_sort(rank_.halves, {}, [&](std::size_t h) { return record_.halves[h].called; });
    for (const std::size_t h : rank_.halves) {
      if (!record_.halves[h].is_send) rank_.acts[record_.halves[h].act].receives.push_back(h);
    }
  }

 private:
  const KinetoCollective& collective_of(const KinetoActivity& activity) const {
    return trace_.collectives[static_cast<std::size_t>(activity.collective)];
  }

  /// Tells whether a kernel belongs to a message: NCCL runs all-to-all with the same kernels, under another
  /// name.
  bool is_message(const KinetoActivity& activity) const {
    if (activity.collective < 0) return false;
    const KinetoCollective& c = collective_of(activity);
    if (c.source || c.destination || c.name == "send" || c.name == "recv") return true;
    return trace_.names[static_cast<std::size_t>(activity.name)].find("SendRecv") != std::string::npos &&
           (c.name == "SendRecv" || c.name == "coalesced");
  }

  void read_kernel(const PipelineKernel& kernel) {
    const KinetoActivity& activity = *kernel.activity;
    const KinetoCollective& c = collective_of(activity);
    const KinetoRange* range = kernel.range;
    if (range != nullptr && !is_send(range->kind) && !is_receive(range->kind)) range = nullptr;
    Half half;
    if (c.source || c.name == "recv") {
      half.is_send = false;
    } else if (c.destination || c.name == "send") {
      half.is_send = true;
    } else if (range != nullptr) {
      half.is_send = is_send(range->kind);
    } else {
      record_.add(
          Finding::unplaced_message, rank_, activity.event, "SendRecv",
          "expected 'Src Rank', 'Dst Rank' or a range of a send or receive around its call, which say what "
          "it is, found none");
      return;
    }
    const KinetoLaunch& launch = trace_.launches[static_cast<std::size_t>(activity.launch)];
    half.called = record_.aligned(rank_, launch.start);
    half.start = record_.aligned(rank_, activity.start);
    half.end = record_.aligned(rank_, activity.end());
    half.is_awaited = half.is_kernel = true;
    half.bytes = c.bytes();
    const std::optional<std::int64_t> peer = half.is_send ? c.destination : c.source;
    if (peer) half.global_peer = static_cast<std::int32_t>(*peer);
    half.event = activity.event;
    rank_.waits.push_back({half.start, half.end});
    take(half, range);
  }

  /// Returns the range in which a message is called or, for a receive that was posted early, waited for.
  const KinetoRange* range_of(const KinetoHostMessage& message) const {
    const KinetoRange* range = nullptr;
    for (const KinetoRange* one : around_) {
      if (one->thread == message.thread && one->start <= message.start && message.start < one->end)
        range = one;
    }
    if (range != nullptr || message.is_send || !message.is_awaited) return range;
    for (const KinetoRange* one : around_) {
      if (is_receive(one->kind) && one->start <= message.end && message.end <= one->end) range = one;
    }
    return range;
  }

  void read_call(const KinetoHostMessage& message) {
    const KinetoRange* range = range_of(message);
    Half half;
    half.is_send = message.is_send;
    half.called = half.start = record_.aligned(rank_, message.start);
    half.end = record_.aligned(rank_, message.end);
    half.is_awaited = message.is_awaited;
    half.bytes = message.bytes;
    half.group_peer = message.peer;
    half.tag = message.tag;
    half.event = message.event;
    take(half, range);
  }

  void read_range(const KinetoRange& range) {
    Half half;
    half.is_send = is_send(range.kind);
    half.called = half.start = record_.aligned(rank_, range.start);
    half.end = record_.aligned(rank_, range.end);
    half.is_awaited = !half.is_send;
    half.event = range.event;
    take(half, &range);
  }

  /// Adds a half, with the data of the range around it, if that is of its kind.
  void take(Half half, const KinetoRange* range) {
    half.rank = number_;
    half.awaited = half.start;
    if (range != nullptr && is_send(range->kind) == half.is_send) {
      used_.insert(range);
      if (range->peer) half.global_peer = range->peer;
      half.message = range->message;
      half.awaited = std::max(half.start, record_.aligned(rank_, range->start));
      half.reshard = range->kind == Range::reshard_send || range->kind == Range::reshard_receive;
    } else {
      range = nullptr;
    }
    const std::size_t found = find_act(half, range);
    if (found == kNoIndex) {
      record_.add(Finding::unplaced_message, rank_, half.event, half.is_send ? "send" : "receive",
                  half.is_send ? "expected a forward or backward before it, found none"
                               : "expected a forward or backward that needs it, found none");
      return;
    }
    const PipelineAct& act = rank_.acts[found];
    half.act = found;
    half.stage = act.stage;
    half.microbatch = act.microbatch;
    half.forward = act.op == Op::forward;
    rank_.halves.push_back(record_.halves.size());
    record_.halves.push_back(half);
  }

  /// Finds the act that a message belongs to: by the range around its call, else by its neighbors.
  std::size_t find_act(const Half& half, const KinetoRange* range) const {
    const Nanoseconds when = range != nullptr ? record_.aligned(rank_, range->start) : half.called;
    std::size_t found = kNoIndex;
    for (std::size_t a = 0; a < rank_.acts.size(); ++a) {
      const PipelineAct& act = rank_.acts[a];
      if (act.op != Op::forward && !is_backward(act.op)) continue;
      if (range != nullptr) {
        if (range->stage != act.stage || range->microbatch != act.microbatch) continue;
        if (const auto forward = is_forward(range->kind)) {
          if (*forward == (act.op == Op::forward)) found = a;
          continue;
        }
      }
      if (half.is_send ? act.returned <= when : found == kNoIndex && act.called >= when) found = a;
    }
    return found;
  }

  PipelineRecord& record_;
  const std::size_t number_;
  PipelineRank& rank_;
  const KinetoTrace& trace_;
  std::vector<const KinetoRange*> around_;  ///< of sends and receives
  std::set<const KinetoRange*> used_;
};

/// A MessageJoiner finds the other end of each message.
class MessageJoiner {
 public:
  explicit MessageJoiner(PipelineRecord& record) : record_(record), halves_(record.halves) {}

  void run() {
    std::map<std::pair<bool, std::int32_t>, std::vector<std::size_t>> receives;  // direction, microbatch
    std::vector<std::size_t> sends;
    for (std::size_t h = 0; h < halves_.size(); ++h) {
      if (halves_[h].is_send) {
        sends.push_back(h);
      } else {
        receives[{halves_[h].forward, halves_[h].microbatch}].push_back(h);
      }
    }
    const auto by_call = [&](std::size_t h) { return halves_[h].called; };
    std::ranges::stable_sort(sends, {}, by_call);
    for (auto& [key, list] : receives) std::ranges::stable_sort(list, {}, by_call);
    for (const std::size_t s : sends) join(s, receives[{halves_[s].forward, halves_[s].microbatch}]);
    for (const Half& half : halves_) {
      if (half.is_send) continue;
      if (half.other == kNoIndex) refuse(half, "expected its send on another rank, found none");
      if (half.end > record_.ranks[half.rank].acts[half.act].end)
        refuse(half, "expected it to end before the end of the forward or backward that needs it");
    }
  }

 private:
  void join(std::size_t s, const std::vector<std::size_t>& receives) {
    Half& send = halves_[s];
    std::size_t best = kNoIndex;
    bool ambiguous = false;
    const auto distance = [&](std::size_t h) { return std::abs(halves_[h].stage - send.stage); };
    for (const std::size_t h : receives) {
      if (halves_[h].other != kNoIndex || !fit(send, halves_[h])) continue;
      if (best == kNoIndex || distance(h) < distance(best)) {
        best = h;
        ambiguous = false;
      } else if (distance(h) == distance(best) && halves_[h].rank != halves_[best].rank) {
        ambiguous = true;
      }
    }
    if (best == kNoIndex || ambiguous) {
      refuse(send, ambiguous ? "its receiver may be one of several ranks; name it as peer=R"
                             : "expected its receive on another rank, found none");
      return;
    }
    send.other = best;
    halves_[best].other = s;
    halves_[best].reshard = send.reshard = send.reshard || halves_[best].reshard;
  }

  bool fit(const Half& send, const Half& receive) const {
    if (receive.rank == send.rank || receive.tag != send.tag) return false;
    if (send.message && receive.message && *send.message != *receive.message) return false;
    if (send.forward ? receive.stage <= send.stage : receive.stage >= send.stage) return false;
    if (send.bytes && receive.bytes && *send.bytes != *receive.bytes) return false;
    return may_be(send, record_.ranks[send.rank], record_.ranks[receive.rank]) &&
           may_be(receive, record_.ranks[receive.rank], record_.ranks[send.rank]);
  }

  /// Tells whether a peer named by one end may be this rank: by its global rank, or its rank in a process
  /// group of both.
  bool may_be(const Half& half, const PipelineRank& own, const PipelineRank& other) const {
    const std::int32_t self = *record_.trace_of(own).rank;
    const std::int32_t peer = *record_.trace_of(other).rank;
    if (half.global_peer) return *half.global_peer == peer;
    if (!half.group_peer) return true;
    const auto& groups = record_.trace_of(own).process_groups;
    if (groups.empty()) return *half.group_peer == peer;
    return std::ranges::any_of(groups, [&](const std::vector<std::int32_t>& group) {
      return *half.group_peer >= 0 && static_cast<std::size_t>(*half.group_peer) < group.size() &&
             group[static_cast<std::size_t>(*half.group_peer)] == peer &&
             std::ranges::find(group, self) != group.end();
    });
  }

  void refuse(const Half& half, const std::string& why) {
    record_.add(Finding::unmatched_message, record_.ranks[half.rank], half.event,
                half.is_send ? "send" : "receive",
                fmt::format("{} of microbatch {}, stage {}: {}", half.forward ? "forward" : "backward",
                            half.microbatch, half.stage, why));
  }

  PipelineRecord& record_;
  std::vector<Half>& halves_;
};

/// Returns the shortest message time for each pair of ranks, by the clocks of both.
std::map<std::pair<std::size_t, std::size_t>, Nanoseconds> shortest_transfers(const PipelineRecord& record) {
  std::map<std::pair<std::size_t, std::size_t>, Nanoseconds> shortest;
  for (const Half& receive : record.halves) {
    if (receive.is_send) continue;
    const Half& send = record.halves[receive.other];
    const Nanoseconds transfer = receive.end - send.start;
    const auto [place, fresh] = shortest.try_emplace({send.rank, receive.rank}, transfer);
    if (!fresh) place->second = std::min(place->second, transfer);
  }
  return shortest;
}

/// Shifts all times of a rank by the offset of its clock.
void shift(PipelineRecord& record, PipelineRank& rank) {
  for (PipelineAct& act : rank.acts) {
    for (Nanoseconds* time : {&act.called, &act.returned, &act.start, &act.end}) *time -= rank.ahead;
  }
  for (PipelineInterval& wait : rank.waits) {
    wait.begin -= rank.ahead;
    wait.end -= rank.ahead;
  }
  for (const std::size_t h : rank.halves) {
    PipelineHalf& half = record.halves[h];
    for (Nanoseconds* time : {&half.called, &half.start, &half.awaited, &half.end}) *time -= rank.ahead;
  }
}

/// Returns since when a rank has only been waiting for a message, if it has.
Nanoseconds wait_begin(const PipelineRecord& record, const Half& receive) {
  const PipelineRank& rank = record.ranks[receive.rank];
  const PipelineAct& act = rank.acts[receive.act];
  if (receive.end > act.start) return std::max(receive.awaited, act.start);
  const Nanoseconds before = receive.act > 0 ? rank.acts[receive.act - 1].end : receive.awaited;
  return std::max(receive.awaited, before);
}

}  // namespace

void read_messages(PipelineRecord& record) {
  for (std::size_t r = 0; r < record.ranks.size(); ++r) HalfReader(record, r).run();
}

void join_messages(PipelineRecord& record) {
  MessageJoiner(record).run();
}

/// Between two ranks, the shortest transfers in both directions differ by twice the clock offset (Mills
/// 1991).
void align_clocks(PipelineRecord& record) {
  const auto shortest = shortest_transfers(record);
  std::vector<std::size_t> settled = {0};
  std::set<std::size_t> done = {0};
  for (std::size_t k = 0; k < settled.size(); ++k) {
    for (std::size_t r = 0; r < record.ranks.size(); ++r) {
      const auto there = shortest.find({settled[k], r});
      const auto back = shortest.find({r, settled[k]});
      if (done.count(r) > 0 || there == shortest.end() || back == shortest.end()) continue;
      done.insert(r);
      settled.push_back(r);
      if (there->second + back->second < Nanoseconds(0)) {
        record.add(
            Finding::different_runs, record.ranks[r],
            fmt::format("messages with {} arrive before they are sent, whatever the clocks' offsets: {:.3f} "
                        "ms there and back",
                        record.trace_of(record.ranks[settled[k]]).file,
                        Seconds(there->second + back->second).count() * 1e3));
      }
      const bool contradict = std::min(there->second, back->second) < Nanoseconds(0);
      record.ranks[r].ahead = record.ranks[settled[k]].ahead;
      if (contradict) record.ranks[r].ahead += (there->second - back->second) / 2;
    }
  }
  for (PipelineRank& rank : record.ranks) shift(record, rank);
}

/// A message whose receive was posted after it was sent takes the time from then on (gloo and NCCL move data
/// when both ends are ready); in another order it may be posted at once.
void set_arrivals(PipelineRecord& record, PipelineStep& step) {
  std::vector<Half>& halves = record.halves;
  std::vector<Nanoseconds> transfers;
  std::vector<bool> known(halves.size(), false);
  const auto sent = [&](const Half& receive) { return std::max(halves[receive.other].start, receive.start); };
  Nanoseconds least = Nanoseconds::max();
  for (std::size_t h = 0; h < halves.size(); ++h) {
    const Half& half = halves[h];
    if (half.is_send) continue;
    const Nanoseconds transfer = std::max(Nanoseconds(0), half.end - sent(half));
    least = std::min(least, transfer);
    known[h] = half.is_kernel || (half.is_awaited && half.end - wait_begin(record, half) > kMinWait);
    if (known[h]) transfers.push_back(transfer);
  }
  step.messages = static_cast<std::int64_t>(halves.size() / 2);
  step.known = static_cast<std::int64_t>(transfers.size());
  std::ranges::sort(transfers);
  step.typical = transfers.empty() ? least : transfers[transfers.size() / 2];
  step.longest = transfers.empty() ? least : transfers.back();
  for (PipelineRank& rank : record.ranks) {
    for (PipelineAct& act : rank.acts) {
      for (const std::size_t h : act.receives)
        act.start = std::max(act.start, std::min(act.end, halves[h].end));
    }
  }
  for (std::size_t h = 0; h < halves.size(); ++h) {
    Half& half = halves[h];
    if (half.is_send) continue;
    const Nanoseconds from = halves[half.other].start;
    const Nanoseconds transfer = known[h] ? half.end - sent(half) : step.typical;
    half.end = from + std::clamp(half.end - from, Nanoseconds(0), std::max(Nanoseconds(0), transfer));
  }
}

}  // namespace dflop
