// simulate_next() runs steps in sequence without a barrier between them. A group begins a step when it has
// finished its own part of the previous step, while other groups may still be in the previous step.
#pragma once

#include <vector>

#include "core/timeline.hpp"
#include "sim/engine.hpp"

namespace dflop {

/// A StepStart says when groups begin a step. Time 0 is when the first of them begins to compute.
struct StepStart {
  std::vector<Nanoseconds> begins = {};  ///< by group, see Conditions::begins
  Nanoseconds ended{0};                  ///< when the last group ends the previous step
};

/// Returns the start of a recorded step.
StepStart start_of(const Timeline& recorded);

/// Simulates a step from `start`, and then sets `start` for the next step. The makespan goes from the last
/// group's end of the previous step to the last group's end of this one, so the makespans of a sequence add
/// up to its total time. The part of the makespan in which a group neither computes nor waits is idle time.
/// If `start` is null, the step is simulated by itself. If `start` has a different number of groups, it is
/// ignored, and all groups begin together.
Timeline simulate_next(const Program& program, const ProgramCosts& costs, Detail detail,
                       Conditions conditions, StepStart* start);

}  // namespace dflop
