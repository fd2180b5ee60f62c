#include "sim/step_sequence.hpp"

#include <algorithm>
#include <unordered_map>

namespace dflop {
namespace {

/// Returns when each group has run its last instruction. This does not include sends and sums that the group
/// does not wait for: they continue without it.
std::vector<Nanoseconds> group_ends(const Timeline& timeline) {
  std::unordered_map<std::int32_t, Nanoseconds> end_of;  // by first rank
  for (const Span& span : timeline.spans) {
    if (is_send(span.op) || span.op == Op::all_reduce_start) continue;
    Nanoseconds& end = end_of[span.rank];
    end = std::max(end, span.start + span.duration);
  }
  std::vector<Nanoseconds> ends;
  for (const GroupUsage& group : timeline.groups)
    ends.push_back(std::max(group.begin, end_of[group.first_rank]));
  return ends;
}

/// Returns whether a group waits for a message before it computes anything.
bool receives_first(const Program& program, const Group& group) {
  const auto begin = program.instructions.begin();
  const auto first = std::find_if(begin + group.begin, begin + group.end, [](const Instruction& i) {
    return is_receive(i.op) || is_compute(i.op) || i.op == Op::optimizer_step;
  });
  return first != begin + group.end && is_receive(first->op);
}

}  // namespace

StepStart start_of(const Timeline& recorded) {
  StepStart start;
  for (const GroupUsage& group : recorded.groups) start.begins.push_back(group.begin);
  start.ended = std::ranges::max(group_ends(recorded)) - recorded.makespan;
  return start;
}

Timeline simulate_next(const Program& program, const ProgramCosts& costs, Detail detail,
                       Conditions conditions, StepStart* sequence) {
  if (sequence == nullptr) return simulate(program, costs, detail, conditions);
  StepStart& start = *sequence;
  if (start.begins.size() != program.groups.size()) start = {};  // from another program
  conditions.begins = start.begins;
  Timeline timeline = simulate(program, costs, Detail::spans, conditions);
  if (!timeline.stalls.empty()) {
    start = {};
  } else {
    const std::vector<Nanoseconds> ends = group_ends(timeline);
    const Nanoseconds ended = std::ranges::max(ends);
    shorten_to(ended - start.ended, timeline);
    // A group that receives first may begin before the first group that sends, and then waits for it.
    Nanoseconds first = ended;
    for (std::size_t g = 0; g < ends.size(); ++g) {
      if (!receives_first(program, program.groups[g])) first = std::min(first, ends[g]);
    }
    start.ended = ended - first;
    start.begins.clear();
    for (const Nanoseconds end : ends) start.begins.push_back(std::max(Nanoseconds(0), end - first));
  }
  if (detail == Detail::usage) {
    timeline.spans.clear();
    timeline.memory.clear();
    timeline.works.clear();
  }
  return timeline;
}

}  // namespace dflop
