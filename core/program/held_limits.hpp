// Limits say how many microbatches the ranks of a pipeline have memory for.
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"

namespace dflop {

/// Returns the most microbatches that each pipeline rank (Group::stage) can hold, any that follow each other,
/// with its model state and workspaces; at least one, as a rank that cannot hold one microbatch cannot run.
/// Ranks have one stage each. The pipeline has `microbatches` of them, of which j is like j mod M of the
/// program's M. Where two ranks share a GPU each module has what 1f1b needs on its fullest rank, if both
/// modules then fit, and half of what is left.
std::vector<int> held_limits(const Program& program, const ProgramCosts& costs, int microbatches,
                             Bytes usable_memory);

}  // namespace dflop
