// Recordings of runs are judged as live runs are, wherever they were made.
#pragma once

#include <string>

#include "experiments/fidelity/study.hpp"
#include "experiments/studies/profile_option.hpp"
#include "traces/files/timeline.hpp"

namespace dflop {

/// Predicts a recording's steps by a profile and compares, without the first step of a live run, which warms
/// up. The plan is what the recording's groups and stages show of it. `file` is the recording's place for
/// errors.
/// @throws Error (input) for a recording without shapes of stages or work, for a profile of another model
/// than the recording names or without what its stages need, and as judge_steps() and require_reach()
PlanFidelity judge_recording(const TimelineFile& recording, const std::string& file,
                             const NamedProfile& profile, bool extrapolate);

}  // namespace dflop
