#include "traces/profiler/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace dflop {
namespace {

using Finding = KinetoFindingKind;
using Range = KinetoRangeKind;

/// A receive that ends later than its wait begins by less than this was not waited for: so long takes the
/// waiting itself.
constexpr Nanoseconds kLeastWait{200'000};

Op op_of(Range kind) {
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
    case Range::optimizer_step:
      return Op::optimizer_step;
    case Range::send_forward:
    case Range::send_backward:
      return Op::send;
    case Range::receive_forward:
    case Range::receive_backward:
    case Range::wait:
      break;
  }
  return Op::receive;
}

/// An Act is what a rank does in one range, in the order of its instructions.
struct Act {
  const KinetoRange* range = nullptr;
  Op op = Op::forward;
  std::int32_t stage = 0;
  Nanoseconds start{0};  ///< on the common clock, as of the range; later without what it waited for inside
  Nanoseconds end{0};
  std::vector<std::size_t> receives;  ///< halves, in the order of their calls
};

/// A Half is one end of a message.
struct Half {
  std::size_t rank = 0;  ///< index of a RankStep
  bool is_send = false;
  bool forward = true;
  std::int32_t stage = -1;
  std::int32_t microbatch = -1;
  Nanoseconds start{0};  ///< of the call, on the common clock
  Nanoseconds end{0};
  bool is_awaited = false;
  std::optional<Bytes> bytes;
  std::optional<std::int32_t> global_peer;
  std::optional<std::int32_t> group_peer;  ///< rank in a process group
  std::int64_t tag = 0;
  std::size_t event = 0;
  std::size_t act = 0;  ///< of a receive: what needs it
  std::size_t other = kNone;

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
};

/// A RankStep is what one rank does in a step.
struct RankStep {
  std::size_t trace = 0;
  std::vector<Act> acts;
  std::vector<const KinetoRange*> waits;
  std::vector<std::size_t> halves;  ///< in the order of their calls
  Nanoseconds ahead{0};             ///< how far its clock is, by its messages, ahead of the first rank's
};

std::string name_of(const KinetoRange& range) {
  std::string name(to_string(range.kind));
  if (range.stage >= 0) name += fmt::format(" stage={}", range.stage);
  if (range.microbatch >= 0) name += fmt::format(" mb={}", range.microbatch);
  return name;
}

/// A StepBuilder makes the timeline of one step.
class StepBuilder {
 public:
  StepBuilder(const std::vector<KinetoTrace>& traces, const KinetoRanks& clocks,
              const std::vector<std::size_t>& order, std::int64_t number,
              std::vector<KinetoFinding>& findings)
      : traces_(traces), clocks_(clocks), number_(number), findings_(findings), before_(findings.size()) {
    for (const std::size_t trace : order) ranks_.push_back({trace, {}, {}, {}, {}});
  }

  /// Returns the step; nothing, with findings, where something has no place.
  std::optional<PipelineStep> run() {
    for (RankStep& rank : ranks_) read_ranges(rank);
    if (!is_complete()) return std::nullopt;
    for (std::size_t r = 0; r < ranks_.size(); ++r) read_messages(r);
    if (findings_.size() > before_) return std::nullopt;
    join_messages();
    if (findings_.size() > before_) return std::nullopt;
    align_clocks();
    set_arrivals();
    return build();
  }

 private:
  const KinetoTrace& trace_of(const RankStep& rank) const { return traces_[rank.trace]; }

  Nanoseconds aligned(const RankStep& rank, Nanoseconds time) const {
    return clocks_.aligned(traces_, rank.trace, time) - rank.ahead;
  }

  void add(Finding kind, const RankStep& rank, std::size_t event, const std::string& name, std::string text) {
    findings_.push_back({kind, event, kineto_place(trace_of(rank), event, name),
                         fmt::format("step {}: {}", number_, std::move(text))});
  }

  void add(Finding kind, const RankStep& rank, std::string text) {
    findings_.push_back({kind, 0, trace_of(rank).file, fmt::format("step {}: {}", number_, std::move(text))});
  }

  /// Returns the part of a trace's time that is the step: all of it without marks of steps.
  std::pair<Nanoseconds, Nanoseconds> window_of(const KinetoTrace& trace) const {
    for (const KinetoStep& step : trace.steps) {
      if (step.number == number_) return {step.start, step.start + step.duration};
    }
    return {Nanoseconds::min(), trace.steps.empty() ? Nanoseconds::max() : Nanoseconds::min()};
  }

  template <typename T>
  std::vector<const T*> in_step(const KinetoTrace& trace, const std::vector<T>& all) const {
    const auto [begin, end] = window_of(trace);
    std::vector<const T*> some;
    for (const T& one : all) {
      if (one.start >= begin && one.start < end) some.push_back(&one);
    }
    return some;
  }

  void read_ranges(RankStep& rank) {
    for (const KinetoRange* range : in_step(trace_of(rank), trace_of(rank).ranges)) {
      if (range->kind == Range::wait) rank.waits.push_back(range);
      const bool acts =
          is_compute(range->kind) || range->kind == Range::all_reduce || range->kind == Range::optimizer_step;
      if (!acts) continue;
      rank.acts.push_back({range,
                           op_of(range->kind),
                           range->stage,
                           aligned(rank, range->start),
                           aligned(rank, range->end),
                           {}});
    }
    // What belongs to no stage is of the rank's first.
    std::int32_t first = INT32_MAX;
    for (const Act& act : rank.acts) {
      if (act.stage >= 0) first = std::min(first, act.stage);
    }
    for (Act& act : rank.acts) {
      if (act.stage < 0) act.stage = first;
    }
  }

  /// Finds what a rank has twice, what overlaps, and forwards and backwards without each other.
  void check_acts(const RankStep& rank) {
    std::map<std::tuple<std::int32_t, std::int32_t, Op>, std::size_t> seen;
    const Act* before = nullptr;
    for (const Act& act : rank.acts) {
      if (before != nullptr && act.start < before->end) {
        add(Finding::overlapping_ranges, rank, act.range->event, name_of(*act.range),
            fmt::format("expected it to begin when '{}' has ended", name_of(*before->range)));
      }
      before = &act;
      if (!is_compute(act.op)) continue;
      const auto [place, fresh] = seen.try_emplace({act.stage, act.range->microbatch, act.op}, 0);
      if (fresh) continue;
      add(Finding::repeated_range, rank, act.range->event, name_of(*act.range),
          "expected it once; call the profiler's step() after each step");
    }
    for (const auto& [key, unused] : seen) {
      const std::int32_t stage = std::get<0>(key);
      const std::int32_t microbatch = std::get<1>(key);
      const Op op = std::get<2>(key);
      const auto has = [&](Op other) { return seen.count({stage, microbatch, other}) > 0; };
      const auto lacks = [&](std::string_view what) {
        add(Finding::missing_range, rank,
            fmt::format("stage {} has a {} of microbatch {} and no {}", stage, to_string(op), microbatch,
                        what));
      };
      const bool split = has(Op::backward_input) && has(Op::backward_weight);
      if (op == Op::forward && !has(Op::backward) && !split) lacks("backward, or both of its parts");
      if (op != Op::forward && !has(Op::forward)) lacks("forward");
      if (op == Op::backward && (has(Op::backward_input) || has(Op::backward_weight)))
        lacks("single way to go back: its parts are there, too");
    }
  }

  bool is_complete() {
    for (const RankStep& rank : ranks_) {
      const bool computes = std::ranges::any_of(rank.acts, [](const Act& act) { return is_compute(act.op); });
      if (!computes) {
        add(Finding::missing_range, rank,
            "expected ranges of forwards and backwards as on other ranks, found none");
      }
      check_acts(rank);
    }
    if (findings_.size() > before_) return false;
    Nanoseconds latest_begin = Nanoseconds::min();
    Nanoseconds earliest_end = Nanoseconds::max();
    const RankStep* late = nullptr;
    for (const RankStep& rank : ranks_) {
      if (rank.acts.front().start > latest_begin) late = &rank;
      latest_begin = std::max(latest_begin, rank.acts.front().start);
      earliest_end = std::min(earliest_end, rank.acts.back().end);
    }
    if (latest_begin >= earliest_end) {
      add(Finding::different_runs, *late,
          fmt::format(
              "it begins {:.3f} s after another rank has ended it: of another run, or without a common clock",
              Seconds(latest_begin - earliest_end).count()));
      return false;
    }
    std::set<std::int32_t> stages;
    for (const RankStep& rank : ranks_) {
      for (const Act& act : rank.acts) stages.insert(act.stage);
    }
    stages_ = *stages.rbegin() + 1;
    for (std::int32_t stage = 0; stage < stages_; ++stage) {
      if (stages.count(stage) > 0) continue;
      add(Finding::missing_range, ranks_.front(), fmt::format("no rank has stage {} of {}", stage, stages_));
    }
    return findings_.size() == before_;
  }

  void read_messages(std::size_t r) {
    RankStep& rank = ranks_[r];
    const KinetoTrace& trace = trace_of(rank);
    std::vector<const KinetoRange*> around;  // ranges of sends and receives
    for (const KinetoRange* range : in_step(trace, trace.ranges)) {
      if (is_send(range->kind) || is_receive(range->kind)) around.push_back(range);
    }
    std::set<const KinetoRange*> used;
    for (const KinetoHostMessage* message : in_step(trace, trace.messages)) {
      const KinetoRange* range = nullptr;
      for (const KinetoRange* one : around) {
        if (one->thread == message->thread && one->start <= message->start && message->start < one->end)
          range = one;
      }
      Half half;
      half.rank = r;
      half.is_send = message->is_send;
      half.start = aligned(rank, message->start);
      half.end = aligned(rank, message->end);
      half.is_awaited = message->is_awaited;
      half.bytes = message->bytes;
      half.group_peer = message->peer;
      half.tag = message->tag;
      half.event = message->event;
      if (range != nullptr && is_send(range->kind) == message->is_send) {
        used.insert(range);
        half.global_peer = range->peer;
      } else {
        range = nullptr;
      }
      place(rank, half, range);
    }
    for (const KinetoRange* range : around) {
      if (used.count(range) > 0) continue;
      Half half;
      half.rank = r;
      half.is_send = is_send(range->kind);
      half.start = aligned(rank, range->start);
      half.end = aligned(rank, range->end);
      half.is_awaited = !half.is_send;
      half.global_peer = range->peer;
      half.event = range->event;
      place(rank, half, range);
    }
    std::ranges::sort(rank.halves, {}, [&](std::size_t h) { return halves_[h].start; });
    for (const std::size_t h : rank.halves) {
      if (!halves_[h].is_send) rank.acts[halves_[h].act].receives.push_back(h);
    }
  }

  static bool is_backward(Op op) { return op == Op::backward || op == Op::backward_input; }

  /// Finds the act that a message is of, by the range around its call or by what is beside it.
  void place(RankStep& rank, Half half, const KinetoRange* range) {
    const auto matters = [&](const Act& act) { return act.op == Op::forward || is_backward(act.op); };
    std::size_t found = Half::kNone;
    for (std::size_t a = 0; a < rank.acts.size(); ++a) {
      const Act& act = rank.acts[a];
      if (!matters(act)) continue;
      if (range != nullptr) {
        const bool forward = range->kind == Range::send_forward || range->kind == Range::receive_forward;
        if (forward == (act.op == Op::forward) && range->stage == act.stage &&
            range->microbatch == act.range->microbatch) {
          found = a;
        }
      } else if (half.is_send ? act.end <= half.start : found == Half::kNone && act.start >= half.start) {
        found = a;
      }
    }
    if (found == Half::kNone) {
      add(Finding::unplaced_message, rank, half.event, half.is_send ? "send" : "receive",
          half.is_send ? "expected a forward or backward before it, found none"
                       : "expected a forward or backward that needs it, found none");
      return;
    }
    const Act& act = rank.acts[found];
    half.act = found;
    half.stage = act.stage;
    half.microbatch = act.range->microbatch;
    half.forward = act.op == Op::forward;
    rank.halves.push_back(halves_.size());
    halves_.push_back(half);
  }

  /// Tells whether a peer, as one end calls it, may be this rank: by its global rank or in a process group
  /// of both.
  bool may_be(const Half& half, const RankStep& own, const RankStep& other) const {
    const std::int32_t self = *trace_of(own).rank;
    const std::int32_t peer = *trace_of(other).rank;
    if (half.global_peer) return *half.global_peer == peer;
    if (!half.group_peer) return true;
    const auto& groups = trace_of(own).process_groups;
    if (groups.empty()) return *half.group_peer == peer;
    return std::ranges::any_of(groups, [&](const std::vector<std::int32_t>& group) {
      return *half.group_peer >= 0 && static_cast<std::size_t>(*half.group_peer) < group.size() &&
             group[static_cast<std::size_t>(*half.group_peer)] == peer &&
             std::ranges::find(group, self) != group.end();
    });
  }

  bool fit(const Half& send, const Half& receive) const {
    if (receive.rank == send.rank || receive.tag != send.tag) return false;
    if (send.forward ? receive.stage <= send.stage : receive.stage >= send.stage) return false;
    if (send.bytes && receive.bytes && *send.bytes != *receive.bytes) return false;
    return may_be(send, ranks_[send.rank], ranks_[receive.rank]) &&
           may_be(receive, ranks_[receive.rank], ranks_[send.rank]);
  }

  void join_messages() {
    using Key = std::pair<bool, std::int32_t>;  // direction, microbatch
    std::map<Key, std::vector<std::size_t>> receives;
    std::vector<std::size_t> sends;
    for (std::size_t h = 0; h < halves_.size(); ++h) {
      if (halves_[h].is_send) {
        sends.push_back(h);
      } else {
        receives[{halves_[h].forward, halves_[h].microbatch}].push_back(h);
      }
    }
    const auto by_start = [&](std::size_t h) { return halves_[h].start; };
    std::ranges::stable_sort(sends, {}, by_start);
    for (auto& [key, list] : receives) std::ranges::stable_sort(list, {}, by_start);
    for (const std::size_t s : sends) {
      Half& send = halves_[s];
      std::size_t best = Half::kNone;
      bool ambiguous = false;
      const auto distance = [&](std::size_t h) { return std::abs(halves_[h].stage - send.stage); };
      for (const std::size_t h : receives[{send.forward, send.microbatch}]) {
        if (halves_[h].other != Half::kNone || !fit(send, halves_[h])) continue;
        if (best == Half::kNone || distance(h) < distance(best)) {
          best = h;
          ambiguous = false;
        } else if (distance(h) == distance(best) && halves_[h].rank != halves_[best].rank) {
          ambiguous = true;
        }
      }
      if (best == Half::kNone || ambiguous) {
        refuse_half(send, ambiguous ? "its receiver may be one of several ranks; name it as peer=R"
                                    : "expected its receive on another rank, found none");
        continue;
      }
      send.other = best;
      halves_[best].other = s;
    }
    for (const Half& half : halves_) {
      if (half.is_send) continue;
      if (half.other == Half::kNone) refuse_half(half, "expected its send on another rank, found none");
      if (half.end > ranks_[half.rank].acts[half.act].end)
        refuse_half(half, "expected it to end before what needs it has ended");
    }
  }

  void refuse_half(const Half& half, const std::string& why) {
    add(Finding::unmatched_message, ranks_[half.rank], half.event, half.is_send ? "send" : "receive",
        fmt::format("{} of microbatch {}, stage {}: {}", half.forward ? "forward" : "backward",
                    half.microbatch, half.stage, why));
  }

  /// Returns since when a rank did nothing but wait for a message, if it did.
  Nanoseconds wait_begin(const Half& receive) const {
    const RankStep& rank = ranks_[receive.rank];
    const Act& act = rank.acts[receive.act];
    if (receive.end > act.start) return std::max(receive.start, act.start);
    const Nanoseconds before = receive.act > 0 ? rank.acts[receive.act - 1].end : receive.start;
    return std::max(receive.start, before);
  }

  /// Returns the shortest time in which a message went from one rank to another, by the clocks of both.
  std::map<std::pair<std::size_t, std::size_t>, Nanoseconds> shortest_transfers() const {
    std::map<std::pair<std::size_t, std::size_t>, Nanoseconds> shortest;
    for (const Half& receive : halves_) {
      if (receive.is_send) continue;
      const Half& send = halves_[receive.other];
      const Nanoseconds transfer = receive.end - send.start;
      const auto [place, fresh] = shortest.try_emplace({send.rank, receive.rank}, transfer);
      if (!fresh) place->second = std::min(place->second, transfer);
    }
    return shortest;
  }

  /// Moves the clocks of ranks whose messages come before they are sent. Between two ranks, the shortest
  /// transfers there and back differ by twice what their clocks do (Mills 1991).
  void align_clocks() {
    const auto shortest = shortest_transfers();
    std::vector<std::size_t> settled = {0};
    std::set<std::size_t> done = {0};
    for (std::size_t k = 0; k < settled.size(); ++k) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const auto there = shortest.find({settled[k], r});
        const auto back = shortest.find({r, settled[k]});
        if (done.count(r) > 0 || there == shortest.end() || back == shortest.end()) continue;
        done.insert(r);
        settled.push_back(r);
        const bool contradict = std::min(there->second, back->second) < Nanoseconds(0);
        ranks_[r].ahead = ranks_[settled[k]].ahead;
        if (contradict) ranks_[r].ahead += (there->second - back->second) / 2;
      }
    }
    for (RankStep& rank : ranks_) {
      for (Act& act : rank.acts) {
        act.start -= rank.ahead;
        act.end -= rank.ahead;
      }
    }
    for (Half& half : halves_) {
      half.start -= ranks_[half.rank].ahead;
      half.end -= ranks_[half.rank].ahead;
    }
  }

  /// Sets Half::end of receives to when the data came, and begins what waited for it inside its range then. A
  /// message that was asked for after it was sent takes as long as from then on (gloo and NCCL move data when
  /// both ends are there), and in another order it may be asked for at once.
  void set_arrivals() {
    std::vector<Nanoseconds> transfers;
    std::vector<bool> known(halves_.size(), false);
    const auto sent = [&](const Half& receive) {
      return std::max(halves_[receive.other].start, receive.start);
    };
    Nanoseconds least = Nanoseconds::max();
    for (std::size_t h = 0; h < halves_.size(); ++h) {
      const Half& half = halves_[h];
      if (half.is_send) continue;
      const Nanoseconds transfer = std::max(Nanoseconds(0), half.end - sent(half));
      least = std::min(least, transfer);
      known[h] = half.is_awaited && half.end - wait_begin(half) > kLeastWait;
      if (known[h]) transfers.push_back(transfer);
    }
    step_.messages = static_cast<std::int64_t>(halves_.size() / 2);
    step_.known = static_cast<std::int64_t>(transfers.size());
    std::ranges::sort(transfers);
    step_.typical = transfers.empty() ? least : transfers[transfers.size() / 2];
    step_.longest = transfers.empty() ? least : transfers.back();
    for (RankStep& rank : ranks_) {
      for (Act& act : rank.acts) {
        for (const std::size_t h : act.receives)
          act.start = std::max(act.start, std::min(act.end, halves_[h].end));
      }
    }
    for (std::size_t h = 0; h < halves_.size(); ++h) {
      Half& half = halves_[h];
      if (half.is_send) continue;
      const Nanoseconds from = halves_[half.other].start;
      const Nanoseconds transfer = known[h] ? half.end - sent(half) : step_.typical;
      half.end = from + std::clamp(half.end - from, Nanoseconds(0), std::max(Nanoseconds(0), transfer));
    }
  }

  PipelineStep build() {
    Timeline& timeline = step_.timeline;
    timeline.source = "recorded";
    step_.number = number_;
    for (std::int32_t stage = 0; stage < stages_; ++stage)
      timeline.stages.push_back(fmt::format("stage {}", stage));
    Nanoseconds begin = Nanoseconds::max();
    for (const RankStep& rank : ranks_) begin = std::min(begin, rank.acts.front().start);
    number_messages();
    number_reductions();
    std::map<std::int32_t, std::int32_t> ranks_of_stage;
    for (const RankStep& rank : ranks_) {
      GroupUsage group;
      group.first_rank = *trace_of(rank).rank;
      group.stage = rank.acts.front().stage;
      for (const Act& act : rank.acts) group.stage = std::min(group.stage, act.stage);
      group.dp_rank = ranks_of_stage[group.stage]++;
      append_spans(rank, group, begin);
      timeline.groups.push_back(group);
    }
    for (const Span& span : timeline.spans)
      timeline.makespan = std::max(timeline.makespan, span.start + span.duration);
    for (GroupUsage& group : timeline.groups) group.bubble = timeline.makespan - group.busy - group.wait;
    return std::move(step_);
  }

  void number_messages() {
    std::int32_t next = 0;
    message_of_.assign(halves_.size(), -1);
    for (std::size_t h = 0; h < halves_.size(); ++h) {
      if (!halves_[h].is_send) continue;
      message_of_[h] = message_of_[halves_[h].other] = next++;
    }
  }

  /// Joins the reductions of a stage in the order in which each of its ranks has them. One that a single rank
  /// has is none.
  void number_reductions() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<const Act*>>
        joined;  // stage, how many before
    for (const RankStep& rank : ranks_) {
      std::map<std::int32_t, std::int32_t> seen;
      for (const Act& act : rank.acts) {
        if (act.op == Op::all_reduce) joined[{act.stage, seen[act.stage]++}].push_back(&act);
      }
    }
    std::int32_t next = 0;
    for (const auto& [key, acts] : joined) {
      if (acts.size() < 2) continue;
      for (const Act* act : acts) reduction_of_[act] = next;
      ++next;
    }
  }

  /// Returns how long a rank waited in a time by its own ranges.
  Nanoseconds waited(const RankStep& rank, Nanoseconds begin, Nanoseconds end) const {
    Nanoseconds sum{0};
    for (const KinetoRange* wait : rank.waits) {
      const Nanoseconds from = std::max(begin, aligned(rank, wait->start));
      sum += std::max(Nanoseconds(0), std::min(end, aligned(rank, wait->end)) - from);
    }
    return sum;
  }

  void append_spans(const RankStep& rank, GroupUsage& group, Nanoseconds begin) {
    std::int32_t position = 0;
    std::size_t next_half = 0;
    Nanoseconds cursor = rank.acts.front().start;
    const auto span = [&](Op op, Stream stream, std::int32_t stage, std::int32_t microbatch,
                          Nanoseconds start, Nanoseconds end) -> Span& {
      Span& one = step_.timeline.spans.emplace_back();
      one.rank = group.first_rank;
      one.op = op;
      one.stream = stream;
      one.stage = static_cast<std::uint16_t>(stage);
      one.microbatch = microbatch;
      one.start = start - begin;
      one.duration = std::max(Nanoseconds(0), end - start);
      one.position = position++;
      return one;
    };
    const auto add_sends = [&](Nanoseconds until) {
      for (; next_half < rank.halves.size() && halves_[rank.halves[next_half]].start < until; ++next_half) {
        const std::size_t h = rank.halves[next_half];
        const Half& send = halves_[h];
        if (!send.is_send) continue;
        cursor = std::max(cursor, send.start);
        Span& one =
            span(Op::send, Stream::send, send.stage, send.microbatch, cursor, halves_[send.other].end);
        one.bytes = send.bytes.value_or(Bytes{});
        one.message = message_of_[h];
        group.transfer += one.duration;
      }
    };
    for (const Act& act : rank.acts) {
      add_sends(aligned(rank, act.range->start));
      const Nanoseconds before = cursor;
      bool awaited = false;
      for (const std::size_t h : act.receives) {
        const Half& receive = halves_[h];
        Span& one = span(Op::receive, Stream::receive, act.stage, act.range->microbatch, cursor,
                         std::max(cursor, receive.end));
        one.bytes = halves_[receive.other].bytes.value_or(Bytes{});
        one.message = message_of_[h];
        awaited = awaited || one.duration > Nanoseconds(0);
        group.wait += std::max(Nanoseconds(0), receive.end - std::max(cursor, halves_[receive.other].start));
        cursor = std::max(cursor, receive.end);
      }
      // What is done before a range is of the range, where nothing was waited for.
      const bool keeps_start = awaited || act.op == Op::all_reduce;  // when ranks meet says the start
      const Nanoseconds ready =
          keeps_start ? act.start : std::min(act.start, cursor + waited(rank, before, act.start));
      const Nanoseconds start = std::max(cursor, ready);
      const Nanoseconds end = std::max(start, act.end);
      const auto reduction = reduction_of_.find(&act);
      if (act.op == Op::all_reduce && reduction == reduction_of_.end()) continue;
      Span& one = span(act.op, act.op == Op::all_reduce ? Stream::collective : Stream::compute, act.stage,
                       act.range->microbatch, start, end);
      if (reduction != reduction_of_.end()) {
        one.message = reduction->second;
        group.wait += one.duration;
      } else {
        group.busy += one.duration;
      }
      cursor = end;
    }
    add_sends(Nanoseconds::max());
  }

  const std::vector<KinetoTrace>& traces_;
  const KinetoRanks& clocks_;
  const std::int64_t number_;
  std::vector<KinetoFinding>& findings_;
  const std::size_t before_;  ///< findings of other steps
  std::vector<RankStep> ranks_;
  std::vector<Half> halves_;
  std::vector<std::int32_t> message_of_;  ///< of the halves
  std::map<const Act*, std::int32_t> reduction_of_;
  std::int32_t stages_ = 0;
  PipelineStep step_;
};

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
    if (!trace.activities.empty()) {
      result.findings.push_back({Finding::device_ranges, trace.activities.front().event, trace.file,
                                 "it has kernels of a device, and ranges are read on the host alone"});
    }
  }
  if (!result.findings.empty()) return result;
  for (const std::int64_t number : common_steps(traces)) {
    if (auto step = StepBuilder(traces, ranks, order, number, result.findings).run())
      result.steps.push_back(std::move(*step));
  }
  if (result.steps.empty() && result.findings.empty()) {
    result.findings.push_back({Finding::truncated_profile, 0, traces.front().file,
                               "expected a step that all ranks have recorded, found none"});
  }
  return result;
}

}  // namespace dflop
