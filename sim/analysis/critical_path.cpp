#include "sim/analysis/critical_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "core/error.hpp"
#include "sim/engine.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kNone = -1;

/// Throws unless `holds`. `what` is the text of the error, with {} at the position of the number. The text is
/// made only if needed, because every span is checked.
void require(bool holds, std::string_view what, std::int64_t number = 0) {
  if (holds) return;
  throw Error(ErrorKind::internal, "critical path: " + fmt::format(fmt::runtime(what), number));
}

/// A PathWalk walks back from the end of the run. Its position is `group_` at `time_`, the end of instruction
/// `at_`. It finds the last link of the path first.
class PathWalk {
 public:
  PathWalk(const Program& program, const ProgramCosts& costs, const Timeline& timeline,
           const Conditions& conditions)
      : program_(program),
        costs_(costs),
        timeline_(timeline),
        conditions_(conditions),
        cores_(conditions.cores > 0) {
    require(timeline.stalls.empty(), "the run stalled, so it has no end to walk back from");
    index_spans();
    if (shares_gpus()) late_entries_ = late_entry_times(program, costs, conditions);
  }

  std::vector<PathLink> walk() {
    begin_at_last_group();
    while (at_ != kNone && at_ >= program_.groups[group_].begin) step();
    require(time_ == Nanoseconds(0), "expected to arrive at 0, found {} ns", time_.count());
    std::reverse(links_.begin(), links_.end());
    return std::move(links_);
  }

 private:
  struct Place {
    std::int32_t group = 0;
    std::int64_t instruction = 0;
  };

  void index_spans() {
    span_of_.assign(program_.instructions.size(), kNone);
    send_of_.assign(program_.messages.size(), kNone);
    entries_.resize(program_.collectives.size());
    std::unordered_map<std::int32_t, std::int32_t> group_of;  // by first rank
    for (std::size_t g = 0; g < program_.groups.size(); ++g) {
      group_of[program_.groups[g].first_rank] = static_cast<std::int32_t>(g);
    }
    const std::size_t queues = program_.queues();
    std::vector<std::int64_t> latest(program_.groups.size() * queues, kNone);  // per group and queue
    for (std::size_t s = 0; s < timeline_.spans.size(); ++s) {
      const Span& span = timeline_.spans[s];
      const auto found = group_of.find(span.rank);
      require(found != group_of.end(), "no group begins at rank {}", span.rank);
      const Group& group = program_.groups[found->second];
      const std::int64_t instruction = group.begin + span.position;
      require(span.position >= 0 && instruction < group.end && span_of_[instruction] == kNone &&
                  program_.instructions[instruction].op == span.op,
              "span {} does not belong to its own instruction", static_cast<std::int64_t>(s));
      span_of_[instruction] = static_cast<std::int64_t>(s);
      const std::int32_t index = program_.instructions[instruction].index;
      if (is_send(span.op)) send_of_[index] = instruction;
      if (cores_ && span.stream == Stream::compute && span.duration > Nanoseconds(0)) {
        freed_.try_emplace(end_of(span), Place{found->second, instruction});
      }
      if (!enters_collective(span.op)) continue;
      std::int64_t& before = latest[found->second * queues + program_.collectives[index].queue];
      entries_[index].push_back({found->second, instruction, before});
      before = index;
    }
    require(timeline_.spans.size() == program_.instructions.size(),
            "expected a span for each instruction, found {}",
            static_cast<std::int64_t>(timeline_.spans.size()));
  }

  const Span& span_at(std::int64_t instruction) const { return timeline_.spans[span_of_[instruction]]; }
  static Nanoseconds end_of(const Span& span) { return span.start + span.duration; }

  /// Returns when the group finishes an instruction and continues: at once after a send and an
  /// all_reduce_start.
  Nanoseconds done(std::int32_t group, std::int64_t instruction) const {
    for (; instruction >= program_.groups[group].begin; --instruction) {
      const Op op = program_.instructions[instruction].op;
      if (!is_send(op) && op != Op::all_reduce_start) return end_of(span_at(instruction));
    }
    return Nanoseconds(0);
  }

  void begin_at_last_group() {
    time_ = timeline_.makespan;
    for (std::size_t g = 0; g < program_.groups.size(); ++g) {
      group_ = static_cast<std::int32_t>(g);
      at_ = program_.groups[g].end - 1;
      if (done(group_, at_) == time_) return;
    }
    require(program_.groups.empty(), "no group ends with the run");
    at_ = kNone;
  }

  void step() {
    const Instruction& instruction = program_.instructions[at_];
    const Span& span = span_at(at_);
    if (is_send(instruction.op) || instruction.op == Op::all_reduce_start) {
      --at_;
      return;
    }
    require(end_of(span) == time_, "instruction {} does not end when the next begins", at_);
    const bool waited = span.duration > Nanoseconds(0);
    if (instruction.op == Op::all_reduce || (instruction.op == Op::all_reduce_wait && waited)) {
      follow_collective(instruction.index);
    } else if (is_receive(instruction.op) && waited) {
      follow_message(instruction.index);
    } else {
      if (span.stream != Stream::compute) {
        --at_;
        return;
      }
      add_compute(at_, shares_gpus() ? computed_until(group_, at_, time_) : costs_.instruction[at_]);
      go_before(at_, at_);
    }
  }

  bool shares_gpus() const { return program_.shared_gpus > 0; }

  /// Returns how long a compute instruction of a group had run at a given time, not counting pauses.
  Nanoseconds computed_until(std::int32_t group, std::int64_t instruction, Nanoseconds time) const {
    const Nanoseconds start = span_at(instruction).start;
    return time - start - paused_time(conditions_, group, start, time);
  }

  /// Returns the links of `amount` of a group's compute instruction: compute, and the pauses in it.
  std::vector<PathLink> run_of(std::int32_t group, std::int64_t instruction, Nanoseconds amount) const {
    const Instruction& what = program_.instructions[instruction];
    std::vector<ComputePiece> pieces;
    run_compute(conditions_, group, span_at(instruction).start, amount, &pieces);
    std::vector<PathLink> parts;
    for (const ComputePiece& piece : pieces) {
      parts.push_back({piece.paused ? PathLinkKind::pause : PathLinkKind::compute, what.op, what.stage,
                       what.stage, group, group, what.microbatch, piece.start, piece.end - piece.start});
    }
    return parts;
  }

  static Nanoseconds end_of(const std::vector<PathLink>& parts) {
    return parts.back().start + parts.back().duration;
  }

  void add_compute(std::int64_t instruction, Nanoseconds amount) {
    std::vector<PathLink> parts = run_of(group_, instruction, amount);
    require(end_of(parts) == time_, "instruction {} does not take what it costs", instruction);
    if (cores_went_to_) {
      parts.back().to_group = cores_went_to_->group;
      parts.back().to_stage = program_.instructions[cores_went_to_->instruction].stage;
      cores_went_to_.reset();
    }
    links_.insert(links_.end(), parts.rbegin(), parts.rend());
    time_ = parts.front().start;
  }

  /// Moves from the beginning of a compute instruction to the instruction before `instruction` or, if it
  /// waited for cores, to compute that released some at that time. Such compute took time, because cores were
  /// in use before.
  void go_before(std::int64_t instruction, std::int64_t compute) {
    at_ = instruction - 1;
    if (!cores_ || done(group_, at_) == time_) return;
    const auto freed = freed_.find(time_);
    require(freed != freed_.end(), "instruction {} begins though nobody gave cores back", compute);
    cores_went_to_ = Place{group_, compute};
    group_ = freed->second.group;
    at_ = freed->second.instruction;
  }

  void follow_message(std::int32_t message) {
    const std::int64_t send = send_of_[message];
    const Span& span = span_at(send);
    require(end_of(span) == time_, "message {} is not received when it arrives", message);
    const std::int32_t source = program_.messages[message].source;
    links_.push_back({PathLinkKind::message, span.op, span.stage, program_.instructions[at_].stage, source,
                      group_, span.microbatch, span.start, span.duration});
    group_ = source;
    time_ = span.start;
    at_ = send - 1;
  }

  /// An Entry says how a participant entered a collective.
  struct Entry {
    std::int32_t group = 0;
    std::int64_t instruction = 0;
    std::int64_t before = kNone;  ///< the collective that it ran before in the same queue
  };

  Nanoseconds delay_of(const Entry& entry, std::int64_t compute) const {
    return entry_delay(program_.collectives[program_.instructions[entry.instruction].index],
                       costs_.instruction[compute]);
  }

  /// Returns the compute during which an all_reduce_start takes effect; kNone if the group enters at once.
  std::int64_t compute_of(const Entry& entry) const {
    std::int64_t compute = entry.instruction;
    if (program_.instructions[compute].op != Op::all_reduce_start) return kNone;
    while (compute < program_.groups[entry.group].end &&
           program_.instructions[compute].op == Op::all_reduce_start) {
      ++compute;
    }
    if (compute == program_.groups[entry.group].end) return kNone;
    return delay_of(entry, compute) > Nanoseconds(0) ? compute : kNone;
  }

  Nanoseconds entered_at(const Entry& entry) const {
    const std::int64_t compute = compute_of(entry);
    if (compute == kNone) return done(entry.group, entry.instruction - 1);
    if (shares_gpus()) return late_entries_[entry.instruction];
    return end_of(run_of(entry.group, compute, delay_of(entry, compute)));
  }

  /// Moves from the end of a collective to the participant that came last, through any collectives that this
  /// participant ran before.
  void follow_collective(std::int64_t collective) {
    std::uint16_t to_stage = program_.instructions[at_].stage;
    for (;;) {
      std::vector<Entry> entries = entries_[collective];
      std::stable_partition(entries.begin(), entries.end(),
                            [&](const Entry& entry) { return entry.group == group_; });
      const Span& span = span_at(entries.front().instruction);
      require(end_of(span) == time_, "collective {} ends unawaited", collective);
      time_ = span.start;
      auto last = std::find_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return entered_at(entry) == time_; });
      const bool entered = last != entries.end();
      if (!entered)
        last = std::find_if(entries.begin(), entries.end(),
                            [&](const Entry& e) { return held_up_by(e) != kNone; });
      require(last != entries.end(), "nobody came last to collective {}", collective);
      const std::uint16_t stage = program_.instructions[last->instruction].stage;
      links_.push_back({PathLinkKind::collective, Op::all_reduce, stage, to_stage, last->group, group_, -1,
                        span.start, span.duration});
      group_ = last->group;
      if (entered) return leave_collective(*last);
      to_stage = stage;
      collective = held_up_by(*last);
    }
  }

  /// Returns the collective that ends now and for which a participant's collective waited: the one before it
  /// in the same queue, or one of Collective::after; kNone if there is none.
  std::int64_t held_up_by(const Entry& entry) const {
    const auto ends_now = [&](std::int64_t collective) {
      return end_of(span_at(entries_[collective].front().instruction)) == time_;
    };
    if (entry.before != kNone && ends_now(entry.before)) return entry.before;
    const std::vector<std::int32_t>& after =
        program_.collectives[program_.instructions[entry.instruction].index].after;
    const auto found = std::ranges::find_if(after, ends_now);
    return found == after.end() ? kNone : *found;
  }

  void leave_collective(const Entry& last) {
    const std::int64_t compute = compute_of(last);
    if (compute == kNone) {
      at_ = last.instruction - 1;
      return;
    }
    add_compute(compute, shares_gpus() ? computed_until(group_, compute, time_) : delay_of(last, compute));
    go_before(last.instruction, compute);
  }

  const Program& program_;
  const ProgramCosts& costs_;
  const Timeline& timeline_;
  const Conditions& conditions_;
  bool cores_;                               ///< groups may have waited for cores
  std::map<Nanoseconds, Place> freed_;       ///< by time, if cores_: compute that released cores then
  std::optional<Place> cores_went_to_;       ///< from the compute that the walk has reached
  std::vector<std::int64_t> span_of_;        ///< per instruction
  std::vector<Nanoseconds> late_entries_;    ///< on shared GPUs: late_entry_times()
  std::vector<std::int64_t> send_of_;        ///< per message: its instruction
  std::vector<std::vector<Entry>> entries_;  ///< per collective, in the order of its participants
  std::int32_t group_ = 0;
  std::int64_t at_ = kNone;
  Nanoseconds time_{0};
  std::vector<PathLink> links_;
};

}  // namespace

std::vector<PathLink> critical_path(const Program& program, const ProgramCosts& costs,
                                    const Timeline& timeline, const Conditions& conditions) {
  return PathWalk(program, costs, timeline, conditions).walk();
}

std::vector<PathShare> path_shares(const std::vector<PathLink>& path) {
  std::map<std::tuple<std::uint16_t, PathLinkKind, Op>, PathShare> shares;
  for (const PathLink& link : path) {
    PathShare& share = shares[{link.stage, link.kind, link.op}];
    share = {link.stage, link.kind, link.op, share.links + 1, share.duration + link.duration};
  }
  std::vector<PathShare> out;
  for (const auto& [key, share] : shares) out.push_back(share);
  return out;
}

}  // namespace dflop
