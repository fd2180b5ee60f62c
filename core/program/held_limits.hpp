// held_limits() computes how many microbatches the ranks of a pipeline have memory for.
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"

namespace dflop {

/// Returns the max number of consecutive microbatches that each pipeline rank (Group::stage) can hold in
/// addition to its model state and workspaces. It is at least one, because a rank that cannot hold one
/// microbatch cannot run. Each rank must have one stage. `microbatches` is the pipeline's number of
/// microbatches, which may differ from the program's number M: microbatch j is like microbatch j mod M of the
/// program. If two ranks share a GPU, each module gets the memory that 1f1b needs on its fullest rank (if
/// both then fit) plus half of the rest.
std::vector<int> held_limits(const Program& program, const ProgramCosts& costs, int microbatches,
                             Bytes usable_memory);

}  // namespace dflop
