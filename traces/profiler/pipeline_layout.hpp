// This file adds to a recorded step the information that a plan has and ranges lack: shapes of stages, work,
// and bytes of messages.
#pragma once

#include <optional>
#include <string>

#include "core/program.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// Gives a timeline that was read from ranges the stages, dp ranks, shapes and bytes of a plan's program, so
/// that it can price other plans. `has_work`: the program is for the step's batch, so its work and the bytes
/// of its messages are known; else it was lowered without work.
///
/// Both must have the same ranks and, on each rank, the same stages and microbatches. With work, they must
/// also have the same messages; between each two stages the recorded bytes must be in one ratio to the
/// program's, because types may differ. The order of instructions is the recording's.
/// @returns the contradiction, and then leaves the timeline unchanged; nothing if both fit.
/// @pre groups have one rank each
std::optional<std::string> apply_layout(Timeline& timeline, const Program& program, bool has_work);

}  // namespace dflop
