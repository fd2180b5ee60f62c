// Steps of a pipeline that were read from other programs' traces are replayed once, before anybody relies on
// them.
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

/// The likely cause where a replay of a recorded pipeline is shorter than the record.
inline constexpr std::string_view kLateReceives =
    ", as where receives are posted only when their data are needed: their messages begin late, and in a replay "
    "they begin when they are sent";

/// A replay of itself that is off by more than this is no replay.
inline constexpr double kMostReplayError = 0.05;

/// Gives each step what its plan says (apply_layout()): of the schedule's iteration N mod I where step N ran
/// under a schedule of I iterations, else, where `schedule` is nothing, what holds for all batches. A step
/// that contradicts it is taken out, with a finding. `file` and `plan_file` are their places.
/// @throws Error (input) for a plan with tp, whose ranks hold parts of stages
void apply_plan(PipelineImport& pipeline, const std::string& file, const Plan& plan,
                const std::string& plan_file, const ScheduleFile* schedule, const Target& target);

/// Replays each step as it was, and returns how long each took that is left. One that cannot be replayed, or
/// takes another time than it did, is taken out, with a finding: what was read does not hang together.
std::vector<Nanoseconds> keep_what_replays(PipelineImport& pipeline, const std::string& file);

/// Returns what part of the steps' time is saved where these ranks compute as the others do (as_others()), as
/// a replay of all of them says; nothing where there are none, or ranks that cannot be compared.
std::optional<double> saved_as_others(const PipelineImport& joined, const std::vector<int>& ranks);

/// Keeps the longest run of steps that follow each other, of which the first one's number tells those of all;
/// the rest is taken out, with findings. `replayed` is of all steps, and of those that are left afterwards.
void keep_consecutive(PipelineImport& pipeline, std::vector<Nanoseconds>& replayed, const std::string& file);

}  // namespace dflop
