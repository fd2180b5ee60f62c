// Steps of a pipeline read from other programs' traces are replayed once to check them before use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan.hpp"
#include "core/units.hpp"
#include "experiments/studies/study.hpp"
#include "traces/files/schedule.hpp"
#include "traces/profiler/pipeline.hpp"

namespace dflop {

/// The likely cause if a replay of a recorded pipeline is shorter than the recording.
inline constexpr std::string_view kLateReceives =
    ", as where receives are posted only when their data are needed: their messages begin late, and in a replay "
    "they begin when they are sent";

/// A replay that differs from its recording by more than this is rejected.
inline constexpr double kMostReplayError = 0.05;

/// Adds a plan's data to each step (apply_layout()): if step N ran under a schedule of I iterations, those of
/// iteration N mod I; if `schedule` is null, only what holds for all batches. A step that contradicts the
/// plan is removed, with a finding. `file` and `plan_file` name them in errors.
/// @throws Error (input) for a plan with tp, whose ranks hold parts of stages
void apply_plan(PipelineImport& pipeline, const std::string& file, const Plan& plan,
                const std::string& plan_file, const ScheduleFile* schedule, const Target& target);

/// Replays each step unchanged, and returns the replayed times of the steps that remain. A step that cannot
/// be replayed, or takes another time than recorded, is removed, with a finding, because its data are
/// inconsistent.
std::vector<Nanoseconds> keep_what_replays(PipelineImport& pipeline, const std::string& file);

/// Returns the fraction of the steps' time saved if these ranks computed as fast as the others (as_others()),
/// according to a replay of all steps; nothing if there are no steps, or ranks cannot be compared.
std::optional<double> saved_as_others(const PipelineImport& joined, const std::vector<int>& ranks);

/// Keeps the longest run of consecutive steps, which the first step's number identifies, and removes the
/// others, with findings. `replayed` has the times of all steps, and afterwards of the remaining ones.
void keep_consecutive(PipelineImport& pipeline, std::vector<Nanoseconds>& replayed, const std::string& file);

}  // namespace dflop
