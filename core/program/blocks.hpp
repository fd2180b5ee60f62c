// Blocks: a group's instruction list, taken apart into the steps of a pipeline schedule.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// A compute instruction with its messages; all are indices into Program::instructions.
struct Block {
  std::vector<std::int64_t> receives;
  std::int64_t compute = -1;
  std::vector<std::int64_t> sends;
};

/// Op, stage and microbatch.
using BlockKey = std::tuple<Op, std::int32_t, std::int32_t>;

struct GroupBlocks {
  std::vector<BlockKey> order;  ///< as in the list
  std::map<BlockKey, Block> blocks;
  std::vector<std::int64_t> starts;  ///< each all_reduce_start that compute comes after
  std::vector<std::int64_t> tail;    ///< what is in no block

  const Block* find(Op op, std::int32_t stage, std::int32_t microbatch) const;
};

/// A receive belongs to the next compute of its stage and microbatch, a send to the last.
/// @pre verify(program) accepts it
/// @throws Error (input) naming the instruction where there is none, or its message names another microbatch.
GroupBlocks take_apart(const Program& program, std::int32_t group);

}  // namespace dflop
