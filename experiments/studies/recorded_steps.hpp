// Steps of a pipeline that were read from other programs' traces are replayed once, before anybody relies on
// them.
#pragma once

#include <string>
#include <vector>

#include "core/units.hpp"
#include "traces/profiler/pipeline.hpp"

namespace dflop {

/// A replay of itself that is off by more than this is no replay.
inline constexpr double kMostReplayError = 0.05;

/// Replays each step as it was, and returns how long each took that is left. One that cannot be replayed, or
/// takes another time than it did, is taken out, with a finding: what was read does not hang together.
std::vector<Nanoseconds> keep_what_replays(PipelineImport& pipeline, const std::string& file);

}  // namespace dflop
