// This file replays pipeline steps from the traces of other programs once, to check them before use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.hpp"
#include "core/units.hpp"
#include "experiments/studies/target.hpp"
#include "traces/files/schedule.hpp"
#include "traces/profiler/pipeline.hpp"

namespace dflop {

/// The likely cause of a replay of a recorded pipeline that is shorter than the recording.
inline constexpr std::string_view kLateReceives =
    ", as when receives are posted only when their data are needed: their messages begin late, but in "
    "a replay they begin when they are sent";

/// A replay that differs from its recording by more than this is rejected.
inline constexpr double kMaxReplayError = 0.05;

/// Adds a plan's data to each step (apply_layout()). If step N ran under a schedule of I iterations, these
/// are the data of iteration N mod I; if `schedule` is null, only data that apply to all batches. A step that
/// contradicts the plan is removed, with a finding. `file` and `plan_file` name the files in errors.
/// @throws Error (input) for a plan with tp, whose ranks hold parts of stages
void apply_plan(PipelineImport& pipeline, const std::string& file, const Plan& plan,
                const std::string& plan_file, const ScheduleFile* schedule, const Target& target);

/// Replays each step unchanged, and returns the replayed times of the remaining steps. A step that cannot be
/// replayed, or takes a different time than recorded, is removed, with a finding, because its data are
/// inconsistent.
std::vector<Nanoseconds> keep_what_replays(PipelineImport& pipeline, const std::string& file);

/// Returns the fraction of the steps' time saved if these ranks computed as fast as the others (as_others()),
/// according to a replay of all steps; nothing if there are no steps, or ranks cannot be compared.
std::optional<double> saved_as_others(const PipelineImport& joined, const std::vector<int>& ranks);

/// Keeps the longest run of consecutive steps, which can be identified by the number of its first step, and
/// removes the others, with findings. `replayed` has the times of all steps; afterwards, of the remaining
/// steps.
void keep_consecutive(PipelineImport& pipeline, std::vector<Nanoseconds>& replayed, const std::string& file);

}  // namespace dflop
