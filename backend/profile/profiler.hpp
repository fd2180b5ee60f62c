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

/// A PointRange holds the max sizes of the points at which a module's units are measured. A point is a
/// number of tokens in sequences of one length.
struct PointRange {
  std::int64_t tokens = 2048;
  std::int64_t length = 2048;  ///< length of a sequence, at most `tokens`

  bool operator==(const PointRange&) const = default;
};

struct ProfilerOptions {
  std::uint64_t seed = 1;  ///< of the values and of the order of points
  Seconds budget{20};      ///< time for measuring units; communication and optimizer take a little more time
  PointRange llm;
  std::optional<PointRange> encoder = {};  ///< nullopt: same as `llm`
  DType dtype = DType::f32;
  std::vector<TpMode> modes{{}};  ///< tp modes to measure, in ascending order; they share the budget
  /// Each mode is measured at these device shares, which are in ascending order. Share 1 is measured in the
  /// given world. A smaller share is measured in the world that make_shared_world(devices, share) returns,
  /// with two ranks on each device.
  std::vector<double> shares{1};
  std::function<std::unique_ptr<World>(int devices, double share)> make_shared_world = {};
  int busy = 1;  ///< number of ranks that run units during a measurement, including the measuring ranks
  /// Earlier results to reuse: tables of the same model, machine and settings, and all-reduces of more ranks
  /// than this run has. Null: there are none.
  const ProfileTables* earlier = nullptr;
  /// The profiler calls this whenever it has measured a mode at one share, with all encoders of the model,
  /// and others remain. The argument is a valid profile with the results so far.
  std::function<void(const ProfileTables&)> on_tables = {};
};

/// Measures the optimizer on rank 0, messages between ranks 0 and 1, and all-reduces over the first 2, 4,
/// ... ranks. Then it measures units in each mode and at each share, with measure_units() or measure_part().
/// All ranks must belong to this process. Their number must be at least `busy` and at least the tp of every
/// mode. The caller sets `dflop_version`.
/// @throws Error (input) for models that cannot run live; OutOfMemory if a unit's smallest points do not
/// fit.
ProfileTables measure_profile(const ModelSpec& model, World& world, const ProfilerOptions& options,
                              const ProfilerProgress& progress = {});

/// Measures the units of a model. `ranks` are the first ranks of a run, in order and in whole tp groups;
/// each runs in its own thread. The ranks of the first group measure in lockstep. The result holds the times
/// of the group's first rank and the memory that passes need. The other groups run units all the time,
/// because the ranks of a real run share caches and memory bandwidth.
///
/// Point sizes double from 16 tokens up to the max. First, a warm-up runs every point once. It drops points
/// for which there is not enough time, but keeps at least two points of each unit. On a host the warm-up
/// goes from the smallest point to the largest. On a device that launches kernels, it goes from the largest
/// to the smallest, and attention is measured on 256 tokens and on enough tokens to fill the device. Then
/// all points run in rounds, each in a new random order so that drift affects all points alike, for at least
/// three rounds and until the mode's share of the budget is spent. A point's time is mean_without_outliers()
/// over the rounds.
/// @throws OutOfMemory if a unit's smallest points, or the 512 tokens for which memory is counted, do not
/// fit; otherwise the exception of the first rank that failed
TpProfile measure_units(const ModelSpec& model, const std::vector<RankContext>& ranks,
                        const ProfilerOptions& options, const ProfilerProgress& progress = {});

/// Measures units like measure_units(), but on a part of each device; there are as many devices as tp ranks.
/// `ranks` are the ranks of a world in which two ranks share each device. The first half of the ranks
/// measures, and each rank of the second half is the neighbor of a measuring rank. A point's time is
/// measured while the neighbors are idle. Then the same point runs again while the neighbors are busy. The
/// optimizer on rank 0 is also measured with busy neighbors. A unit's slowdown by neighbors is the ratio of
/// sums over all points of the unit.
/// @throws what measure_units() throws
TpProfile measure_part(const ModelSpec& model, const std::vector<RankContext>& ranks,
                       const ProfilerOptions& options, const ProfilerProgress& progress = {});

/// Returns the time of one optimizer step on a rank, as a linear function of the number of parameters.
ProfileLine measure_optimizer(const RankContext& rank);

/// Returns the time of summing a rank's squared gradients, as a linear function of the number of parameters.
ProfileLine measure_norm(const RankContext& rank);

/// Measures messages and all-reduces, and sets `message` and `all_reduce` of the profile. `ranks` are all
/// ranks; each works in its own thread. `element` is the type of the summed values. Each is a linear
/// function of the number of bytes, fitted to median times. A time runs from the arrival of the last rank
/// until all ranks are done: the other ranks already wait for the last one, as in a run in which it computes
/// longer. With one rank nothing is measured.
/// @throws the exception of the first rank that failed
void measure_links(const std::vector<LocalRank>& ranks, DType element, ProfileTables& profile);

}  // namespace dflop
