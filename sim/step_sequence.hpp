// Steps run in sequence without a barrier between them: a group begins a step where its own step before it
// ended, while others may still be in that.
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

/// Simulates a step that starts so, and moves `start` on to the start of the next step. The makespan is from
/// the last group's end of the step before to the last group's own, so that those of a sequence add up to its
/// time; a group idles in the rest of it. Without a start the step is simulated alone. A start of another
/// number of groups is that of no group.
Timeline simulate_next(const Program& program, const ProgramCosts& costs, Detail detail,
                       Conditions conditions, StepStart* start);

}  // namespace dflop
