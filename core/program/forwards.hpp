// forwards_of() extracts a Program's forwards, which an evaluation run executes.
#pragma once

#include "core/program.hpp"

namespace dflop {

/// Returns the forwards of a Program with the messages that bring their inputs, in each group's order:
/// without backwards, sums over ranks and optimizer steps. It does not deadlock if the original does not.
/// verify() rejects it because it has no backwards.
Program forwards_of(const Program& program);

}  // namespace dflop
