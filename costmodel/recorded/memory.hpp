// What the instructions of a recorded program kept and needed, from the memory points of its run.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cost_model.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// Fills costs.activation and costs.workspace. `span_of` is the row of each instruction's span.
///
/// A group's points mark every change: at the start of a compute or optimizer instruction, which adds a
/// forward's activations and the instruction's workspace, and at its end, which takes away the workspace and,
/// after a backward, the activations; a backward_input may add to them. A forward of no duration that keeps
/// and needs nothing cannot be told from the next one, nor what a backward_input without workspace adds from
/// what a forward without workspace takes at that instant, where one of them takes nothing: it is then the
/// forward's, as in all timelines of which backward_inputs add nothing.
/// @returns false, with both tables zero, if there are no points or they do not fit the instructions.
bool recover_memory(const Timeline& timeline, const Program& program,
                    const std::vector<std::int64_t>& span_of, ProgramCosts& costs);

}  // namespace dflop
