// This file replays pipeline steps from the traces of other programs, to check them before use.
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

/// A text about the likely cause if the replay of a recorded pipeline is shorter than the recording.
inline constexpr std::string_view kLateReceives =
    ", as when receives are posted only when their data are needed: their messages begin late, but in "
    "a replay they begin when they are sent";

/// The max relative difference between the times of a replay and its recording; larger ones are rejected.
inline constexpr double kMaxReplayError = 0.05;

/// Adds a plan's data to each step (apply_layout()). With a schedule of I iterations, step N gets the data of
/// iteration N mod I. If `schedule` is null, adds only the data that apply to all batches. Removes steps that
/// contradict the plan, with a finding for each. `file` and `plan_file` name the files in errors.
/// @throws Error (input) for a plan with tp, whose ranks hold parts of stages
void apply_plan(PipelineImport& pipeline, const std::string& file, const Plan& plan,
                const std::string& plan_file, const ScheduleFile* schedule, const Target& target);

/// Replays each step unchanged. Removes a step, with a finding, if it cannot be replayed or if replayed and
/// recorded times differ, because its data are then inconsistent. Returns the replayed times of the remaining
/// steps.
std::vector<Nanoseconds> keep_what_replays(PipelineImport& pipeline, const std::string& file);

/// Returns the fraction of the steps' time that would be saved if these ranks computed as fast as the others
/// (as_others()). It comes from a replay of all steps. Returns nullopt if there are no steps, or if ranks
/// cannot be compared.
std::optional<double> saved_as_others(const PipelineImport& joined, const std::vector<int>& ranks);

/// Keeps the longest sequence of consecutive steps, so that the number of its first step identifies all.
/// Removes the other steps, with findings, and their times in `replayed`.
void keep_consecutive(PipelineImport& pipeline, std::vector<Nanoseconds>& replayed, const std::string& file);

}  // namespace dflop
