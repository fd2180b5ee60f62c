#include "costmodel/recorded/memory.hpp"

#include <map>
#include <unordered_map>
#include <utility>

namespace dflop {
namespace {

using Points = std::vector<const MemoryPoint*>;

bool takes_time(Op op) {
  return is_compute(op) || op == Op::optimizer_step;
}

Nanoseconds end_of(const Span& span) {
  return span.start + span.duration;
}

/// Reads the points of one group in the order of its instructions.
class MemoryWalk {
 public:
  MemoryWalk(const Points& points, ProgramCosts& costs) : points_(points), costs_(costs) {}

  /// The point that every group begins with.
  bool begin() { return expect(Nanoseconds(0), Bytes{}); }

  /// `forward_follows`: at the instant at which this instruction ends.
  bool run(std::int64_t i, const Instruction& instruction, const Span& span, bool forward_follows) {
    start(i, instruction, span);
    const Bytes before = activations_;
    const Nanoseconds end = end_of(span);
    const std::pair key{instruction.stage, instruction.microbatch};
    if (instruction.op == Op::backward_input) {
      costs_.activation[i] = rise_at(end, forward_follows && costs_.workspace[i] == Bytes{});
      kept_[key] += costs_.activation[i];
      activations_ += costs_.activation[i];
    } else if (instruction.op == Op::backward || instruction.op == Op::backward_weight) {
      costs_.activation[i] = kept_[key];
      activations_ -= costs_.activation[i];
    }
    const bool changes = activations_ != before || costs_.workspace[i] != Bytes{};
    return !changes || expect(end, activations_);
  }

  bool at_end() const { return next_ == points_.size(); }

 private:
  /// Whether the next point says this, which it then has.
  bool expect(Nanoseconds time, Bytes activations) {
    if (at_end() || points_[next_]->time != time || points_[next_]->activations != activations ||
        points_[next_]->buffers != Bytes{}) {
      return false;
    }
    ++next_;
    return true;
  }

  /// By how much activations are higher at the end of an instruction, as the next point says. Where that
  /// could be the start of a forward, it is, unless another one follows.
  Bytes rise_at(Nanoseconds end, bool may_be_forward) const {
    const auto is_at_end = [&](std::size_t point) {
      return point < points_.size() && points_[point]->time == end;
    };
    if (!is_at_end(next_) || (may_be_forward && !is_at_end(next_ + 1))) return {};
    const MemoryPoint& point = *points_[next_];
    return point.buffers == Bytes{} && point.activations > activations_ ? point.activations - activations_
                                                                        : Bytes{};
  }

  void start(std::int64_t i, const Instruction& instruction, const Span& span) {
    if (at_end() || points_[next_]->time != span.start) return;
    const MemoryPoint& point = *points_[next_];
    // What needs buffers for no time gives them back at once; else they are those of the next instruction.
    const bool ends_here = next_ + 1 < points_.size() && points_[next_ + 1]->time == span.start;
    if (span.duration == Nanoseconds(0) && point.buffers != Bytes{} && !ends_here) return;
    const bool forward = instruction.op == Op::forward;
    if (forward ? point.activations < activations_ : point.activations != activations_) return;
    ++next_;
    costs_.workspace[i] = point.buffers;
    if (!forward) return;
    costs_.activation[i] = point.activations - activations_;
    kept_[{instruction.stage, instruction.microbatch}] = costs_.activation[i];
    activations_ = point.activations;
  }

  const Points& points_;
  ProgramCosts& costs_;
  std::size_t next_ = 0;
  Bytes activations_;
  std::map<std::pair<std::uint16_t, std::int32_t>, Bytes> kept_;
};

/// Of the instructions of a group that take time, in their order.
std::vector<std::int64_t> timed_instructions(const Program& program, const Group& group) {
  std::vector<std::int64_t> timed;
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    if (takes_time(program.instructions[i].op)) timed.push_back(i);
  }
  return timed;
}

/// Whether one of them, from the k-th on, is a forward that starts at this instant.
bool forward_starts(const Timeline& timeline, const Program& program,
                    const std::vector<std::int64_t>& span_of, const std::vector<std::int64_t>& timed,
                    std::size_t k, Nanoseconds instant) {
  for (; k < timed.size() && timeline.spans[span_of[timed[k]]].start == instant; ++k) {
    if (program.instructions[timed[k]].op == Op::forward) return true;
  }
  return false;
}

bool walk(const Timeline& timeline, const Program& program, const std::vector<std::int64_t>& span_of,
          ProgramCosts& costs) {
  std::unordered_map<std::int32_t, Points> points;
  for (const MemoryPoint& point : timeline.memory) points[point.rank].push_back(&point);
  for (const Group& group : program.groups) {
    MemoryWalk memory(points[group.first_rank], costs);
    if (!memory.begin()) return false;
    const std::vector<std::int64_t> timed = timed_instructions(program, group);
    for (std::size_t k = 0; k < timed.size(); ++k) {
      const Span& span = timeline.spans[span_of[timed[k]]];
      const bool forward_follows = forward_starts(timeline, program, span_of, timed, k + 1, end_of(span));
      if (!memory.run(timed[k], program.instructions[timed[k]], span, forward_follows)) return false;
    }
    if (!memory.at_end()) return false;
  }
  return true;
}

}  // namespace

bool recover_memory(const Timeline& timeline, const Program& program,
                    const std::vector<std::int64_t>& span_of, ProgramCosts& costs) {
  const auto clear = [&] {
    costs.activation.assign(program.instructions.size(), Bytes{});
    costs.workspace.assign(program.instructions.size(), Bytes{});
  };
  clear();
  if (!timeline.memory.empty() && walk(timeline, program, span_of, costs)) return true;
  clear();
  return false;
}

}  // namespace dflop
