// This file judges predictions for a recorded run, no matter where it was recorded, in the same way as for
// live runs.
#pragma once

#include <string>

#include "experiments/checks/runs/study.hpp"
#include "experiments/studies/named_profile.hpp"
#include "traces/files/timeline.hpp"

namespace dflop {

/// Predicts the steps of a recording with a profile, and compares the predictions with the recording. Skips
/// the first step of a live run, which is a warm-up step. The plan is derived from the groups and stages in
/// the recording. `file` names the recording in errors.
/// @throws Error (input) for a recording without shapes of stages or work, for a profile of a model that
/// differs from the recording's, and for a profile that lacks parts that the recording's stages need; what
/// judge_steps() and require_reach() throw
PlanFidelity judge_recording(const TimelineFile& recording, const std::string& file,
                             const NamedProfile& profile, bool extrapolate);

}  // namespace dflop
