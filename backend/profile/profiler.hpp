// The profiler measures how long each part of a model, the optimizer and communication take on the ranks of a
// live run. The results are ProfileTables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/model/tensor.hpp"
#include "backend/world.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/units.hpp"

namespace dflop {

/// A ProfilerProgress is called with the amount of work done and the total.
using ProfilerProgress = std::function<void(std::int64_t, std::int64_t)>;

/// A PointRange holds the max sizes of the points at which a module's units are measured: tokens, and length
/// of a sequence.
struct PointRange {
  std::int64_t tokens = 2048;
  std::int64_t length = 2048;  ///< length of a sequence, at most `tokens`

  bool operator==(const PointRange&) const = default;
};

struct ProfilerOptions {
  std::uint64_t seed = 1;  ///< seed of the values and of the order of points
  Seconds budget{20};      ///< for units; communication and optimizer need a little more time
  PointRange llm;
  std::optional<PointRange> encoder = {};  ///< nullopt: same as `llm`
  DType dtype = DType::f32;
  std::vector<TpMode> modes{{}};  ///< tp modes to measure, in ascending order; they share the budget
  /// Each mode is measured at these device shares, which are in ascending order. Share 1 uses the given
  /// world; smaller shares use make_shared_world(devices, share), which puts two ranks on each device.
  std::vector<double> shares{1};
  std::function<std::unique_ptr<World>(int devices, double share)> make_shared_world = {};
  int busy = 1;  ///< number of ranks that run units during measurement, including those that measure
  /// These are earlier results to reuse: tables of the same model, machine and settings, and all-reduces of
  /// more ranks than this run has. Null: there are none.
  const ProfileTables* earlier = nullptr;
  /// The profiler calls this whenever a mode is finished and others remain, with a valid profile of the modes
  /// so far.
  std::function<void(const ProfileTables&)> on_tables = {};
};

/// Measures the optimizer on rank 0, messages between ranks 0 and 1, and all-reduces over the first 2, 4, ...
/// ranks; then the units of each mode with measure_units(). All ranks must belong to this process, and there
/// must be at least `busy` ranks and as many as each tp. The caller sets `dflop_version`.
/// @throws Error (input) for models that cannot run live; OutOfMemory if a unit's smallest points do not fit.
ProfileTables measure_profile(const ModelSpec& model, World& world, const ProfilerOptions& options,
                              const ProfilerProgress& progress = {});

/// Measures units. `ranks` are the first ranks of a run, in order and in whole tp groups; each runs in its
/// own thread. The ranks of the first group measure in lockstep. The result holds the times of the group's
/// first rank and the memory that passes need. The other ranks run units all the time, because the ranks of a
/// real run share caches and memory.
///
/// Point sizes double from 16 tokens up to the max. A warm-up pass comes first and leaves out points for
/// which there is no time, except two of each unit. On a host the warm-up goes from the smallest point to the
/// largest. On a device that launches kernels, the largest points come first, and attention is measured on
/// 256 tokens and on as many as fill the device. Then all points run in rounds, each in a new random order so
/// that drift affects all points alike, for at least three rounds and until the mode's share of the budget is
/// spent. A point's time is mean_without_outliers() over the rounds.
/// @throws OutOfMemory if a unit's smallest points, or the 512 tokens for which memory is counted, do not
/// fit; otherwise the exception of the first rank that failed
TpProfile measure_units(const ModelSpec& model, const std::vector<RankContext>& ranks,
                        const ProfilerOptions& options, const ProfilerProgress& progress = {});

/// Measures units like measure_units(), but on a part of each device. There are as many devices as tp ranks.
/// `ranks` are the ranks of a world that shares these devices: the first half measures, the second half are
/// their neighbors. A point's time is measured while the neighbors rest. Right after it, the same point runs
/// with busy neighbors, and so does the optimizer on rank 0. The effect of neighbors on the part is computed
/// from sums over a unit's points.
/// @throws the errors of measure_units()
TpProfile measure_part(const ModelSpec& model, const std::vector<RankContext>& ranks,
                       const ProfilerOptions& options, const ProfilerProgress& progress = {});

/// Returns the time of one optimizer step on a rank, as a line over the number of parameters.
ProfileLine measure_optimizer(const RankContext& rank);

/// Returns the time to sum a rank's squared gradients, as a line over the number of parameters.
ProfileLine measure_norm(const RankContext& rank);

/// Measures messages and all-reduces, and sets `message` and `all_reduce` of the profile. `ranks` are all
/// ranks; each works in its own thread. `element` is the type of the summed values. Lines over bytes are
/// fitted to medians of the time from the arrival of the last rank until all ranks are done. The other ranks
/// wait for the last rank, as in a run in which that rank was computing. With one rank there are no lines.
/// @throws the exception of the first rank that failed
void measure_links(const std::vector<LocalRank>& ranks, DType element, ProfileTables& profile);

}  // namespace dflop
