// These functions read the options of global batches: their size, number, seed and order.
#pragma once

#include <cstdint>

#include "core/plan.hpp"
#include "experiments/cli/option_values.hpp"
#include "solver/service/outlier_delay.hpp"

namespace dflop {

/// Reads --gbs. @throws Error (usage) for a number that is not in [1, kMaxGbs]
int read_gbs(const Values& values);
/// Reads --iterations. @throws Error (usage) for a number out of range, or if gbs * iterations exceeds
/// kMaxSamplesInAll.
int read_iterations(const Values& values, int gbs);
std::uint64_t read_seed(const Values& values);
/// Reads --delay-outliers and --outlier-bins, for batches of `gbs` samples. Without --outlier-bins, the bins
/// come from `plan`.
/// @throws Error (usage) for a wrong value, if outliers are delayed with neither --outlier-bins nor a plan,
/// and if --outlier-bins has more bins than a batch has samples
OutlierDelay read_delay(const Values& values, int gbs, const Plan* plan = nullptr);

}  // namespace dflop
