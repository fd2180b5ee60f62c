// This file judges the predictions for a recorded run, wherever it was recorded, like those for live runs.
#pragma once

#include <string>

#include "experiments/fidelity/study.hpp"
#include "experiments/studies/profile_option.hpp"
#include "traces/files/timeline.hpp"

namespace dflop {

/// Predicts a recording's steps with a profile and compares. It skips the first step of a live run, a warm-up
/// step. The plan is derived from the recording's groups and stages. `file` names the recording in errors.
/// @throws Error (input) for a recording without shapes of stages or work, for a profile of another model
/// than the recording names or without what its stages need, and as judge_steps() and require_reach()
PlanFidelity judge_recording(const TimelineFile& recording, const std::string& file,
                             const NamedProfile& profile, bool extrapolate);

}  // namespace dflop
