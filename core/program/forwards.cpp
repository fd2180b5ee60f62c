#include "core/program/forwards.hpp"

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace dflop {
namespace {

/// Returns which messages are received for a forward: those that the receiver takes before it runs the
/// forward of their stage and microbatch.
std::vector<bool> forward_messages(const Program& program) {
  std::vector<bool> forward(program.messages.size(), false);
  for (const Group& group : program.groups) {
    std::set<std::pair<int, int>> done;  // stage and microbatch
    for (const Instruction& i : program.instructions_of(group)) {
      const std::pair<int, int> place{i.stage, i.microbatch};
      if (i.op == Op::forward) done.insert(place);
      if (is_receive(i.op)) forward[static_cast<std::size_t>(i.index)] = done.count(place) == 0;
    }
  }
  return forward;
}

}  // namespace

Program forwards_of(const Program& program) {
  Program forwards = program;
  forwards.instructions.clear();
  forwards.messages.clear();
  forwards.collectives.clear();
  const std::vector<bool> kept = forward_messages(program);
  std::vector<std::int32_t> number(program.messages.size(), -1);
  for (std::size_t m = 0; m < kept.size(); ++m) {
    if (!kept[m]) continue;
    number[m] = static_cast<std::int32_t>(forwards.messages.size());
    forwards.messages.push_back(program.messages[m]);
  }
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    forwards.groups[g].begin = static_cast<std::int64_t>(forwards.instructions.size());
    for (Instruction i : program.instructions_of(program.groups[g])) {
      const bool carries = is_send(i.op) || is_receive(i.op);
      if (carries) i.index = number[static_cast<std::size_t>(i.index)];
      if (i.op == Op::forward || (carries && i.index >= 0)) forwards.instructions.push_back(i);
    }
    forwards.groups[g].end = static_cast<std::int64_t>(forwards.instructions.size());
  }
  return forwards;
}

}  // namespace dflop
