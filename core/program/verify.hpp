// verify() checks what must be true of every Program, whoever made it.
#pragma once

#include "core/program.hpp"

namespace dflop {

/// Checks a Program: indices in range, every instruction in the list of one group, every message sent once
/// and received once by the groups it names and in the same order on each channel (from one stage of a group
/// to one stage of another), what a group begins it completes, forward and then backward (so that what a
/// forward keeps is freed), each microbatch once on every stage that the groups of one dp rank run, every
/// collective entered once by each participant, who waits for it once, compute after each all_reduce_start
/// that comes into force during it (Collective::ready rising from start to start and in [0, 1]), and no
/// deadlock with asynchronous sends.
/// @throws Error (input) naming the group and instruction.
void verify(const Program& program);

}  // namespace dflop
