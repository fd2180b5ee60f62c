// What a plan says of a recorded step that ranges do not: shapes of stages, work, and bytes of messages.
#pragma once

#include <optional>
#include <string>

#include "core/program.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// Gives a timeline that was read from ranges the stages, dp ranks, shapes and bytes of a plan's program, so
/// that other plans are priced by it. `has_work`: the program is of the step's batch, and its work and the
/// bytes of its messages are known; else it was lowered without work.
///
/// The two must have the same ranks and, on each, the same stages and microbatches; with work, the same
/// messages, whose recorded bytes are in one ratio to the program's between each two stages, as types differ.
/// The order of instructions is the recording's.
/// @returns what contradicts what, and then leaves the timeline as it is; nothing where both fit.
/// @pre groups of one rank each
std::optional<std::string> apply_layout(Timeline& timeline, const Program& program, bool has_work);

}  // namespace dflop
