// This file measures the profile of a model on the ranks of a live run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/profile/unit_profiler.hpp"
#include "backend/world.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/units.hpp"

namespace dflop {

struct ProfilerOptions {
  std::uint64_t seed = 1;  ///< of values and of the order of points
  Seconds budget{20};      ///< for the units; communication and optimizer come on top and take little
  std::int64_t most_tokens = 2048;
  DType dtype = DType::f32;
  std::vector<TpMode> modes{{}};  ///< of the tables, rising; the budget is shared out
  int busy = 1;  ///< ranks that run units while they are measured, those that measure among them
  /// This has tables of the same model, machine and settings, which are taken over, and sums of more ranks
  /// than there are here. Null: none.
  const ProfileTables* earlier = nullptr;
  /// This is called with what there is, a whole profile of fewer modes, whenever the tables of one are
  /// measured and others are still to be.
  std::function<void(const ProfileTables&)> on_tables = {};
};

/// Measures the optimizer on rank 0 alone, messages between ranks 0 and 1 and all-reduces over the first 2,
/// 4, ... ranks; then units by measure_units(), in each mode. All ranks are this process's, and there are as
/// many as `busy` and each tp. `dflop_version` is left to the caller.
/// @throws Error (input) for models that cannot run live; OutOfMemory where a unit's smallest points have no
/// room.
ProfileTables measure_profile(const ModelSpec& model, World& world, const ProfilerOptions& options,
                              const ProfilerProgress& progress = {});

}  // namespace dflop
