#include "costmodel/recorded_memory.hpp"

#include <map>
#include <unordered_map>
#include <utility>

namespace dflop {
namespace {

using Points = std::vector<const MemoryPoint*>;

bool takes_time(Op op) {
  return is_compute(op) || op == Op::optimizer_step;
}

/// Reads the points of one group in the order of its instructions.
class MemoryWalk {
 public:
  MemoryWalk(const Points& points, ProgramCosts& costs) : points_(points), costs_(costs) {}

  /// The point that every group begins with.
  bool begin() { return expect(Nanoseconds(0), Bytes{}); }

  bool run(std::int64_t i, const Instruction& instruction, const Span& span) {
    start(i, instruction, span.start);
    const Bytes before = activations_;
    if (instruction.op == Op::backward || instruction.op == Op::backward_weight) {
      costs_.activation[i] = kept_[{instruction.stage, instruction.microbatch}];
      activations_ -= costs_.activation[i];
    }
    const bool changes = activations_ != before || costs_.workspace[i] != Bytes{};
    return !changes || expect(span.start + span.duration, activations_);
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

  void start(std::int64_t i, const Instruction& instruction, Nanoseconds time) {
    if (at_end() || points_[next_]->time != time) return;
    const MemoryPoint& point = *points_[next_];
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

bool walk(const Timeline& timeline, const Program& program, const std::vector<std::int64_t>& span_of,
          ProgramCosts& costs) {
  std::unordered_map<std::int32_t, Points> points;
  for (const MemoryPoint& point : timeline.memory) points[point.rank].push_back(&point);
  for (const Group& group : program.groups) {
    MemoryWalk memory(points[group.first_rank], costs);
    if (!memory.begin()) return false;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!takes_time(instruction.op)) continue;
      if (!memory.run(i, instruction, timeline.spans[span_of[i]])) return false;
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
