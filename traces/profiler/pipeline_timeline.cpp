#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "traces/profiler/pipeline_record.hpp"

namespace dflop {
namespace {

/// A rank that begins this long after its message arrived was still in the previous step.
constexpr Nanoseconds kMinHeldUp{100'000};

/// A TimelineWriter makes spans from a record. Positions follow the order of acts; the receives of an act
/// come before it, and sends come where they were called.
class TimelineWriter {
 public:
  TimelineWriter(const PipelineRecord& record, const std::vector<Nanoseconds>* ends_before)
      : record_(record), ends_before_(ends_before) {}

  Timeline run() {
    timeline_.source = "recorded";
    for (std::int32_t stage = 0; stage < record_.stages; ++stage)
      timeline_.stages.push_back(fmt::format("stage {}", stage));
    find_begins();
    number_messages();
    std::map<std::int32_t, std::int32_t> ranks_of_stage;
    for (const PipelineRank& rank : record_.ranks) {
      GroupUsage group;
      group.first_rank = *record_.trace_of(rank).rank;
      group.stage = rank.acts.front().stage;
      for (const PipelineAct& act : rank.acts) group.stage = std::min(group.stage, act.stage);
      group.dp_rank = ranks_of_stage[group.stage]++;
      cursor_ = begins_[timeline_.groups.size()];
      if (ends_before_ != nullptr) group.begin = cursor_ - begin_;
      write(rank, group);
      timeline_.groups.push_back(group);
    }
    for (const Span& span : timeline_.spans)
      timeline_.makespan = std::max(timeline_.makespan, span.start + span.duration);
    shorten_to(std::min(timeline_.makespan, most()), timeline_);
    return std::move(timeline_);
  }

 private:
  /// Finds when each rank begins, and the first of them.
  void find_begins() {
    for (const PipelineRank& rank : record_.ranks) begins_.push_back(rank.acts.front().start);
    begin_ = std::ranges::min(begins_);
    if (ends_before_ == nullptr) return;
    const bool known = !ends_before_->empty();
    for (std::size_t r = 0; known && r < begins_.size(); ++r) {
      begins_[r] = std::min(begins_[r], (*ends_before_)[r]);
      if (!record_.ranks[r].receives_first()) begin_ = std::min(begin_, begins_[r]);
    }
    for (std::size_t r = 0; r < begins_.size(); ++r) {
      const PipelineAct& first = record_.ranks[r].acts.front();
      const auto has_come = [&](std::size_t half) {
        return record_.halves[half].end + kMinHeldUp < first.start;
      };
      // A rank that waits for its message may have been there earlier.
      if (!known && !std::ranges::all_of(first.receives, has_come)) begins_[r] = begin_;
      begins_[r] = std::max(begins_[r], begin_);
    }
  }

  /// Returns the max duration of the step, counting from the last rank's end of the previous step.
  Nanoseconds most() const {
    if (ends_before_ == nullptr) return Nanoseconds::max();
    const std::vector<Nanoseconds>& before = ends_before_->empty() ? begins_ : *ends_before_;
    return std::ranges::max(rank_ends(record_)) - std::ranges::max(before);
  }

  void number_messages() {
    std::int32_t next = 0;
    message_of_.assign(record_.halves.size(), -1);
    for (std::size_t h = 0; h < record_.halves.size(); ++h) {
      if (!record_.halves[h].is_send) continue;
      message_of_[h] = message_of_[record_.halves[h].other] = next++;
    }
  }

  void write(const PipelineRank& rank, GroupUsage& group) {
    rank_ = &rank;
    group_ = &group;
    position_ = 0;
    next_half_ = 0;
    for (const PipelineAct& act : rank.acts) {
      write_sends(act.called);
      if (is_collective(act.op)) {
        write_reduction(act);
      } else {
        write_timed(act);
      }
    }
    write_sends(Nanoseconds::max());
  }

  Span& add(Op op, Stream stream, std::int32_t stage, std::int32_t microbatch, Nanoseconds start,
            Nanoseconds end) {
    Span& span = timeline_.spans.emplace_back();
    span.rank = group_->first_rank;
    span.op = op;
    span.stream = stream;
    span.stage = static_cast<std::uint16_t>(stage);
    span.microbatch = microbatch;
    span.start = start - begin_;
    span.duration = std::max(Nanoseconds(0), end - start);
    span.position = position_++;
    return span;
  }

  void write_sends(Nanoseconds until) {
    for (; next_half_ < rank_->halves.size(); ++next_half_) {
      const std::size_t h = rank_->halves[next_half_];
      const PipelineHalf& send = record_.halves[h];
      if (send.called >= until) return;
      if (!send.is_send) continue;
      const Nanoseconds start = std::max(cursor_, send.start);
      if (!send.is_kernel) cursor_ = start;  // a device continues to compute
      Span& span = add(send.reshard ? Op::reshard_send : Op::send, Stream::send, send.stage, send.microbatch,
                       start, record_.halves[send.other].end);
      span.bytes = send.bytes.value_or(Bytes{});
      span.message = message_of_[h];
      group_->transfer += span.duration;
    }
  }

  /// Returns how long the rank waited in an interval, according to its own ranges.
  Nanoseconds waited(Nanoseconds begin, Nanoseconds end) const {
    Nanoseconds sum{0};
    Nanoseconds until = begin;  // waits on a device may overlap
    for (const PipelineInterval& wait : rank_->waits) {
      const Nanoseconds from = std::max(until, wait.begin);
      until = std::max(until, std::min(end, wait.end));
      sum += std::max(Nanoseconds(0), until - from);
    }
    return sum;
  }

  /// Writes compute or an optimizer step, and its receives.
  void write_timed(const PipelineAct& act) {
    for (const std::size_t h : act.receives) {
      const PipelineHalf& receive = record_.halves[h];
      const PipelineHalf& send = record_.halves[receive.other];
      Span& span = add(receive.reshard ? Op::reshard_receive : Op::receive, Stream::receive, act.stage,
                       act.microbatch, cursor_, std::max(cursor_, receive.end));
      span.bytes = send.bytes.value_or(Bytes{});
      span.message = message_of_[h];
      group_->wait += std::max(Nanoseconds(0), receive.end - std::max(cursor_, send.start));
      cursor_ = std::max(cursor_, receive.end);
    }
    // Time before a range, except waiting, belongs to the range.
    const Nanoseconds start = std::max(cursor_, std::min(act.start, cursor_ + waited(cursor_, act.start)));
    const Nanoseconds end = std::max(start, act.end);
    group_->busy += add(act.op, Stream::compute, act.stage, act.microbatch, start, end).duration;
    cursor_ = end;
  }

  /// Writes a part of a reduction, which involves several ranks.
  void write_reduction(const PipelineAct& act) {
    const PipelineReduction& reduction = record_.reductions[act.reduction];
    if (reduction.number < 0) {
      cursor_ = std::max(cursor_, act.start);
      return;
    }
    Nanoseconds start = std::max(cursor_, reduction.start);  // when ranks meet
    Stream stream = Stream::collective;
    if (act.op == Op::all_reduce_wait) {
      stream = Stream::receive;
      start = std::max(cursor_, act.start);
    }
    Span& span = add(act.op, stream, act.stage, act.microbatch, start, std::max(start, reduction.end));
    span.bytes = reduction.bytes.value_or(Bytes{});
    span.message = reduction.number;
    if (act.op == Op::all_reduce_start) {
      group_->transfer += span.duration;
      return;
    }
    group_->wait += span.duration;
    cursor_ = start + span.duration;
  }

  const PipelineRecord& record_;
  const std::vector<Nanoseconds>* ends_before_;
  Timeline timeline_;
  std::vector<std::int32_t> message_of_;  ///< of the halves
  Nanoseconds begin_{0};
  std::vector<Nanoseconds> begins_;  ///< by rank
  const PipelineRank* rank_ = nullptr;
  GroupUsage* group_ = nullptr;
  std::int32_t position_ = 0;
  std::size_t next_half_ = 0;
  Nanoseconds cursor_{0};
};

}  // namespace

std::vector<Nanoseconds> rank_ends(const PipelineRecord& record) {
  std::vector<Nanoseconds> ends;
  for (const PipelineRank& rank : record.ranks) {
    Nanoseconds& end = ends.emplace_back(Nanoseconds::min());
    for (const PipelineAct& act : rank.acts) {
      if (act.op == Op::all_reduce_start) continue;
      end = std::max(end, is_collective(act.op) ? act.start : act.end);
      if (is_collective(act.op) && record.reductions[act.reduction].number >= 0)
        end = std::max(end, record.reductions[act.reduction].end);
    }
  }
  return ends;
}

Timeline pipeline_timeline(const PipelineRecord& record, const std::vector<Nanoseconds>* ends_before) {
  return TimelineWriter(record, ends_before).run();
}

}  // namespace dflop
