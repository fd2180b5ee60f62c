// This file measures the profile of a model on the ranks of a live run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/model/tensor.hpp"
#include "backend/world.hpp"
#include "core/kernel_choice/kernel_choices.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/units.hpp"

namespace dflop {

/// A ProfilerProgress is called with what is done and what there is to do.
using ProfilerProgress = std::function<void(std::int64_t, std::int64_t)>;

/// A PointRange says how large the points of a module's units become.
struct PointRange {
  std::int64_t tokens = 2048;
  std::int64_t length = 2048;  ///< of a sequence, at most all tokens

  bool operator==(const PointRange&) const = default;
};

struct ProfilerOptions {
  std::uint64_t seed = 1;  ///< of values and of the order of points
  Seconds budget{20};      ///< for the units; communication and optimizer come on top and take little
  PointRange llm;
  std::optional<PointRange> encoder = {};  ///< none: as the LLM's
  DType dtype = DType::f32;
  std::vector<TpMode> modes{{}};  ///< of the tables, rising; the budget is shared out
  /// Tables of each mode are measured on these shares of devices, rising: at 1 in the world that is given,
  /// below it in one that make_shared_world(devices, share) gives for two ranks on each device.
  std::vector<double> shares{1};
  std::function<std::unique_ptr<World>(int devices, double share)> make_shared_world = {};
  int busy = 1;  ///< ranks that run units while they are measured, those that measure among them
  /// This has tables of the same model, machine and settings, which are taken over, and sums of more ranks
  /// than there are here. Null: none.
  const ProfileTables* earlier = nullptr;
  /// These choose kernels, by the file of that hash; null: the default ones run.
  const KernelChoices* kernels = nullptr;
  std::string kernels_hash = {};
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

/// Measures units. `ranks` are the first ones of a run, by rank, in whole tp groups, each in a thread of its
/// own. The first group measures, its ranks in lockstep, and what its first rank takes is kept, with the
/// memory that its passes need; the others run units all the while, as ranks of a run share caches and
/// memory.
///
/// Points double from 16 tokens on to the most. A first pass warms up and leaves out those for which it has
/// no time, but two of each unit: on a host it goes from the smallest to the largest, on a device that
/// launches kernels the largest come first, and attention is measured on 256 tokens and on as many as fill
/// the device. Then all points are run round after round, in an order drawn anew for each, so that drift
/// touches all alike, at least three times and until their mode's part of the budget is spent; a point's
/// passes are the rounds' mean_without_outliers().
/// @throws OutOfMemory where a unit's smallest points, or 512 tokens, for which memory is counted, have no
/// room; what the first rank that failed has thrown
TpProfile measure_units(const ModelSpec& model, const std::vector<RankContext>& ranks,
                        const ProfilerOptions& options, const ProfilerProgress& progress = {});

/// Measures units as measure_units() does, on a part of as many devices as there are tp ranks. `ranks` are
/// those of a world that shares these devices: the first half measures, and the others are their neighbours.
/// Points are what passes take while the neighbours rest. Each is run beside busy neighbours as well, at once
/// after it, and so is the optimizer on rank 0: sums over a unit's points give what the part says of
/// neighbours.
/// @throws as measure_units()
TpProfile measure_part(const ModelSpec& model, const std::vector<RankContext>& ranks,
                       const ProfilerOptions& options, const ProfilerProgress& progress = {});

/// Returns the line of what one optimizer step on a rank takes, by its parameters.
ProfileLine measure_optimizer(const RankContext& rank);

/// Returns the line of what the sum of a rank's squared gradients takes, by its parameters.
ProfileLine measure_norm(const RankContext& rank);

/// Measures messages and all-reduces, and sets `message` and `all_reduce` of the profile. `ranks` are all
/// ranks, each of which works in a thread of its own; `element` is what is summed. Lines, per byte, are
/// fitted to medians of the time from when the last rank comes, for which the others wait, until all are
/// done: as in a run, where it was computing. With one rank there are none.
/// @throws what the first rank that failed has thrown
void measure_links(const std::vector<LocalRank>& ranks, DType element, ProfileTables& profile);

}  // namespace dflop
