// This file measures the units of a model in one mode of tensor parallelism, on one or more ranks at the same
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/model/tensor.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/units.hpp"

namespace dflop {

/// A ProfilerProgress is called with what is done and what there is to do.
using ProfilerProgress = std::function<void(std::int64_t, std::int64_t)>;

struct UnitProfilerOptions {
  std::uint64_t seed = 1;  ///< of values and of the order of points
  Seconds budget{20};
  std::int64_t most_tokens = 2048;
};

/// Measures units. `ranks` are the first ones of a run, by rank, in whole tp groups, each in a thread of its
/// own. The first group measures, its ranks in lockstep, and what its first rank takes is kept, with the
/// memory that its passes need; the others run units all the while, as ranks of a run share caches and
/// memory.
///
/// Points double from 16 tokens on. A first pass goes from the smallest to the largest, warms up and leaves
/// out those for which it has no time, but two of each unit. Then all points are run round after round, in an
/// order drawn anew for each, so that drift touches all alike, at least three times and until the budget is
/// spent; a point's passes are the rounds' mean_without_outliers().
/// @throws OutOfMemory where a unit's smallest points, or 512 tokens, for which memory is counted, have no
/// room; what the first rank that failed has thrown
TpProfile measure_units(const ModelSpec& model, const std::vector<RankContext>& ranks,
                        const UnitProfilerOptions& options, const ProfilerProgress& progress = {});

}  // namespace dflop
