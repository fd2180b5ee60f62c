#include "core/program/blocks.hpp"

#include <string>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

using Place = std::pair<std::int32_t, std::int32_t>;  // stage, microbatch

[[noreturn]] void refuse(const Program& program, std::int32_t group, std::int64_t i) {
  const Instruction& instruction = program.instructions[i];
  throw Error(ErrorKind::input,
              "expected compute of stage " + std::to_string(instruction.stage) + " and microbatch " +
                  std::to_string(instruction.microbatch) + " that this message belongs to, found none",
              "program: group " + std::to_string(group) + ", instruction " +
                  std::to_string(i - program.groups[group].begin) + " (" +
                  std::string(to_string(instruction.op)) + ")");
}

}  // namespace

const Block* GroupBlocks::find(Op op, std::int32_t stage, std::int32_t microbatch) const {
  const auto found = blocks.find({op, stage, microbatch});
  return found == blocks.end() ? nullptr : &found->second;
}

GroupBlocks take_apart(const Program& program, std::int32_t group) {
  GroupBlocks result;
  std::map<Place, std::vector<std::int64_t>> awaited;  // receives whose compute has not come yet
  std::map<Place, Block*> latest;
  std::vector<std::int64_t> starts;
  for (std::int64_t i = program.groups[group].begin; i < program.groups[group].end; ++i) {
    const Instruction& instruction = program.instructions[i];
    const Place place(instruction.stage, instruction.microbatch);
    const bool message = is_send(instruction.op) || is_receive(instruction.op);
    if (message && program.messages[instruction.index].microbatch != instruction.microbatch) {
      refuse(program, group, i);
    }
    if (is_compute(instruction.op)) {
      const BlockKey key(instruction.op, instruction.stage, instruction.microbatch);
      Block& block = result.blocks[key];
      result.order.push_back(key);
      block.compute = i;
      block.receives = std::exchange(awaited[place], {});
      latest[place] = &block;
      result.starts.insert(result.starts.end(), starts.begin(), starts.end());
      starts.clear();
    } else if (is_receive(instruction.op)) {
      awaited[place].push_back(i);
    } else if (is_send(instruction.op)) {
      if (latest.count(place) == 0) refuse(program, group, i);
      latest[place]->sends.push_back(i);
    } else {
      (instruction.op == Op::all_reduce_start ? starts : result.tail).push_back(i);
    }
  }
  for (const auto& [place, receives] : awaited) {
    if (!receives.empty()) refuse(program, group, receives.front());
  }
  result.tail.insert(result.tail.begin(), starts.begin(), starts.end());
  return result;
}

}  // namespace dflop
