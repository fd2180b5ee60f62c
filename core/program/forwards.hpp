// The forwards of a Program are a Program of their own, which an evaluation runs.
#pragma once

#include "core/program.hpp"

namespace dflop {

/// Returns the forwards of a Program with the messages that bring their inputs, in the order that each group
/// has: without backwards, sums over ranks and optimizer steps. What a verified Program waits for comes to an
/// end in it, too. verify() refuses it, as nothing turns back.
Program forwards_of(const Program& program);

}  // namespace dflop
