#include "backend/run/live_timeline.hpp"

#include <algorithm>
#include <utility>

namespace dflop {
namespace {

/// Returns an operation's stream, as in simulations. Waiting for a collective that was started earlier counts
/// as receiving.
Stream stream_of(Op op) {
  if (is_send(op)) return Stream::send;
  if (is_receive(op) || op == Op::all_reduce_wait) return Stream::receive;
  return is_collective(op) ? Stream::collective : Stream::compute;
}

struct Interval {
  Nanoseconds begin{0};
  Nanoseconds end{0};
};

/// Returns the total time covered by at least one interval.
Nanoseconds length_of_union(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Nanoseconds length{0};
  Nanoseconds covered{0};  // up to here; times begin at 0
  for (const Interval& interval : intervals) {
    length += std::max(Nanoseconds{0}, interval.end - std::max(interval.begin, covered));
    covered = std::max(covered, interval.end);
  }
  return length;
}

class LiveTimeline {
 public:
  LiveTimeline(const Program& program, const std::vector<GroupRecord>& records)
      : program_(program),
        records_(records),
        messages_(program.messages.size()),
        reductions_(records.size(), std::vector<Interval>(program.collectives.size())) {
    find_bounds();
    find_transfers();
  }

  Timeline make(const std::string& source) {
    Timeline timeline;
    timeline.source = source;
    timeline.makespan = end_ - begin_;
    timeline.stages = stage_names(program_);
    timeline.stage_shapes = program_.stages;
    timeline.works = program_.works;
    timeline.shared_gpus = program_.shared_gpus;
    for (std::size_t g = 0; g < records_.size(); ++g) {
      timeline.groups.push_back(usage(g));
      timeline.memory.push_back({program_.groups[g].first_rank, Nanoseconds{0}, held_at_first(g), Bytes{}});
    }
    for_each([&](std::size_t g, const Instruction& instruction, const LiveSpan& span) {
      timeline.spans.push_back(span_of(g, instruction, span));
      add_memory(timeline, g, span);
    });
    return timeline;
  }

 private:
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (std::size_t g = 0; g < records_.size(); ++g) for_each_of(g, visit);
  }

  template <typename Visit>
  void for_each_of(std::size_t g, const Visit& visit) const {
    const auto first = static_cast<std::size_t>(program_.groups[g].begin);
    for (const LiveSpan& span : records_[g].spans) {
      visit(g, program_.instructions[first + static_cast<std::size_t>(span.instruction)], span);
    }
  }

  void find_bounds() {
    bool first = true;
    for_each([&](std::size_t, const Instruction&, const LiveSpan& span) {
      begin_ = first ? span.start : std::min(begin_, span.start);
      end_ = first ? span.end : std::max(end_, span.end);
      first = false;
    });
  }

  /// Finds when messages and collectives were in flight. The first pass records when messages were sent and
  /// when the last rank of each collective came; the second pass needs both.
  void find_transfers() {
    std::vector<Nanoseconds> all_there(program_.collectives.size(), Nanoseconds{0});
    for_each([&](std::size_t, const Instruction& instruction, const LiveSpan& span) {
      const Nanoseconds arrival = span.arrival - begin_;
      if (is_send(instruction.op)) messages_[index_of(instruction)].begin = arrival;
      if (!ends_collective(instruction.op)) return;
      Nanoseconds& latest = all_there[index_of(instruction)];
      latest = std::max(latest, arrival);
    });
    for_each([&](std::size_t g, const Instruction& instruction, const LiveSpan& span) {
      const Interval own = interval_of(span);
      if (is_receive(instruction.op)) {
        Interval& sent = messages_[index_of(instruction)];
        const Nanoseconds arrival = span.arrival - begin_;
        sent.end = std::max(sent.begin, arrival > own.begin ? own.end : arrival);
      } else if (ends_collective(instruction.op)) {
        const std::size_t index = index_of(instruction);
        reductions_[g][index] = {std::clamp(all_there[index], own.begin, own.end), own.end};
      }
    });
  }

  static std::size_t index_of(const Instruction& instruction) {
    return static_cast<std::size_t>(instruction.index);
  }

  Interval interval_of(const LiveSpan& span) const { return {span.start - begin_, span.end - begin_}; }

  /// Returns the part of an instruction during which the awaited data are in flight.
  Interval in_flight(std::size_t g, const Instruction& instruction, const LiveSpan& span) const {
    const Interval own = interval_of(span);
    if (is_receive(instruction.op)) {
      return {std::min(own.end, std::max(own.begin, messages_[index_of(instruction)].begin)), own.end};
    }
    return ends_collective(instruction.op) ? reductions_[g][index_of(instruction)] : Interval{};
  }

  GroupUsage usage(std::size_t g) const {
    const Group& group = program_.groups[g];
    GroupUsage usage;
    usage.first_rank = group.first_rank;
    usage.ranks = group.ranks;
    usage.stage = group.stage;
    usage.dp_rank = group.dp_rank;
    std::vector<Interval> transfers;
    for_each_of(g, [&](std::size_t, const Instruction& instruction, const LiveSpan& span) {
      if (is_compute(instruction.op) || instruction.op == Op::optimizer_step) {
        usage.busy += span.end - span.start;
      }
      const Interval waited = in_flight(g, instruction, span);
      usage.wait += waited.end - waited.begin;
      transfers.push_back(waited);
      if (is_send(instruction.op) || is_receive(instruction.op)) {
        transfers.push_back(messages_[index_of(instruction)]);
      }
    });
    usage.bubble = end_ - begin_ - usage.busy - usage.wait;  // never below 0, as spans do not overlap
    usage.transfer = length_of_union(std::move(transfers));
    add_peak(usage, g);
    return usage;
  }

  void add_peak(GroupUsage& usage, std::size_t g) const {
    usage.model_state = records_[g].model_state;
    usage.peak_activations = held_at_first(g);
    usage.peak_memory = usage.model_state.total() + usage.peak_activations;
    for (const LiveSpan& span : records_[g].spans) {
      if (span.most_in_use <= usage.peak_memory) continue;
      usage.peak_memory = span.most_in_use;
      usage.peak_time = span.start - begin_;
      usage.peak_buffers = buffers_of(span);
      usage.peak_activations = usage.peak_memory - usage.model_state.total() - usage.peak_buffers;
    }
  }

  static Bytes buffers_of(const LiveSpan& span) {
    return span.most_in_use - std::max(span.in_use_before, span.in_use);
  }

  Bytes beside_state(std::size_t g, Bytes in_use) const { return in_use - records_[g].model_state.total(); }

  Bytes held_at_first(std::size_t g) const {
    const auto& spans = records_[g].spans;
    return spans.empty() ? Bytes{} : beside_state(g, spans.front().in_use_before);
  }

  void add_memory(Timeline& timeline, std::size_t g, const LiveSpan& span) const {
    if (span.most_in_use == span.in_use_before && span.in_use == span.in_use_before) return;
    const std::int32_t rank = program_.groups[g].first_rank;
    const Interval time = interval_of(span);
    const Bytes held = std::max(span.in_use_before, span.in_use);
    timeline.memory.push_back({rank, time.begin, beside_state(g, held), buffers_of(span)});
    timeline.memory.push_back({rank, time.end, beside_state(g, span.in_use), Bytes{}});
  }

  Span span_of(std::size_t g, const Instruction& instruction, const LiveSpan& recorded) const {
    Span span;
    span.rank = program_.groups[g].first_rank;
    span.stream = stream_of(instruction.op);
    span.op = instruction.op;
    span.stage = instruction.stage;
    span.microbatch = instruction.microbatch;
    span.position = recorded.instruction;
    Interval time = interval_of(recorded);
    const std::size_t index = index_of(instruction);
    if (is_send(instruction.op) || is_receive(instruction.op)) {
      if (is_send(instruction.op)) time = messages_[index];
      span.bytes = program_.messages[index].bytes;
      span.message = instruction.index;
    } else if (is_collective(instruction.op)) {
      if (enters_collective(instruction.op)) {
        time = reductions_[g][index];
        span.bytes = program_.collectives[index].bytes;
      }
      span.message = instruction.index;
    } else if (is_compute(instruction.op)) {
      span.work = instruction.index;
    }
    span.start = time.begin;
    span.duration = time.end - time.begin;
    return span;
  }

  const Program& program_;
  const std::vector<GroupRecord>& records_;
  std::vector<Interval> messages_;                 // each from send to arrival
  std::vector<std::vector<Interval>> reductions_;  // by group and collective, from last arrival to end
  Nanoseconds begin_{0};
  Nanoseconds end_{0};
};

}  // namespace

Timeline live_timeline(const Program& program, const std::vector<GroupRecord>& records,
                       const std::string& source) {
  return LiveTimeline(program, records).make(source);
}

}  // namespace dflop
