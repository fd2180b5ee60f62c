// Measures the profile of a model on the ranks of a live run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backend/world.hpp"
#include "core/model.hpp"
#include "core/units.hpp"
#include "traces/profile_tables.hpp"

namespace dflop {

struct ProfilerOptions {
  std::uint64_t seed = 1;  ///< of values and of the order of points
  Seconds budget{20};      ///< for the units; communication and optimizer come on top and take little
  std::int64_t most_tokens = 2048;
  DType dtype = DType::f32;
};

/// Called with what is done and what there is to do.
using ProfilerProgress = std::function<void(std::int64_t, std::int64_t)>;

/// Rank 0 measures units alone, at tp 1; then messages between ranks 0 and 1 and all-reduces over the first
/// 2, 4, ... ranks. All ranks are this process's.
///
/// Points double from 16 tokens on. A first pass goes from the smallest to the largest, warms up and leaves
/// out those for which it has no time, but two of each unit. Then all points are run round after round, in an
/// order drawn anew for each, so that drift touches all alike, at least three times and until the budget is
/// spent; a point's passes are the medians of the rounds. `dflop_version` is left to the caller.
/// @throws Error (input) for models that cannot run live; OutOfMemory where a unit's smallest points have no
/// room.
ProfileTables measure_profile(const ModelSpec& model, World& world, const ProfilerOptions& options,
                              const ProfilerProgress& progress = {});

/// The model of this machine's processor, as it calls itself; "unknown" where it does not.
std::string host_cpu();

}  // namespace dflop
