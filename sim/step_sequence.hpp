// Steps run in sequence without a barrier between them: a group begins a step when it has ended its own step
// before, while other groups may still be in theirs.
#pragma once

#include <vector>

#include "core/timeline.hpp"
#include "sim/engine.hpp"

namespace dflop {

/// A StepStart says where groups stand at the start of a step, from when the first of them computes on.
struct StepStart {
  std::vector<Nanoseconds> begins = {};  ///< by group, as Conditions::begins
  Nanoseconds ended{0};                  ///< when the last group ends the step before
};

/// Returns how a recorded step starts.
StepStart start_of(const Timeline& recorded);

/// Simulates a step from `start`, and moves `start` on to the next step. The makespan is from the last
/// group's end of the step before to the last group's end of this one, so that the makespans of a sequence
/// add up to its time; what a group does not compute or wait of it is idle. Without a start the step is
/// simulated alone. A start of another number of groups does not count: all groups begin together.
Timeline simulate_next(const Program& program, const ProgramCosts& costs, Detail detail,
                       Conditions conditions, StepStart* start);

}  // namespace dflop
