// This file judges the predictions for a recorded run, from this or another program, in the same way as for
// live runs.
#pragma once

#include <string>

#include "experiments/checks/runs/study.hpp"
#include "experiments/studies/named_profile.hpp"
#include "traces/files/timeline.hpp"

namespace dflop {

/// Predicts the steps of a recording with a profile, and compares predicted and recorded times. Skips the
/// first step of a live run, which is a warm-up step. Derives the plan from the groups and stages in the
/// recording. `file` names the recording in errors.
/// @throws Error (input) for a recording without shapes of stages or work, for a profile of a different
/// model, and for a profile without measurements that the recording's stages need; what judge_steps() and
/// require_reach() throw
PlanFidelity judge_recording(const TimelineFile& recording, const std::string& file,
                             const NamedProfile& profile, bool extrapolate);

}  // namespace dflop
