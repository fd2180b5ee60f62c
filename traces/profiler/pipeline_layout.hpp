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
/// also have the same messages; between each two stages, the ratio of recorded bytes to the program's bytes
/// must be the same for all messages. It may differ from 1, because types may differ. The order of
/// instructions is the recording's.
/// @returns nullopt if the timeline and the program fit; else the contradiction, and the timeline stays
/// unchanged.
/// @pre groups have one rank each
std::optional<std::string> apply_layout(Timeline& timeline, const Program& program, bool has_work);

}  // namespace dflop
