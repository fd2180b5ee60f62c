// This file completes a recorded step with information from a plan that ranges lack: shapes of stages, work,
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
/// The timeline and the program must have the same ranks and, on each rank, the same stages and microbatches.
/// With work, they must also have the same messages. For each pair of stages, the ratio of recorded bytes to
/// the program's bytes must be the same for all messages; it need not be 1, because data types may differ.
/// The timeline keeps the recorded order of instructions.
/// @returns how the two contradict each other, and then leaves the timeline unchanged; nullopt if they fit.
/// @pre groups have one rank each
std::optional<std::string> apply_layout(Timeline& timeline, const Program& program, bool has_work);

}  // namespace dflop
