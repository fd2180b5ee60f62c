// These functions read the options of global batches: their size, number, seed and order.
#pragma once

#include <cstdint>

#include "core/plan.hpp"
#include "experiments/cli/option_values.hpp"
#include "solver/service/outlier_delay.hpp"

namespace dflop {

/// Reads --gbs. @throws Error (usage) for a number that is not in [1, kMaxGbs]
int read_gbs(const Values& values);
/// Reads --iterations. @throws Error (usage) also if gbs * iterations samples are too many to hold.
int read_iterations(const Values& values, int gbs);
std::uint64_t read_seed(const Values& values);
/// Reads the options of add_delay_options(), for batches of `gbs` samples. The default for the bins comes
/// from the plan.
/// @throws Error (usage) also if there is neither, and if a batch has fewer samples than bins
OutlierDelay read_delay(const Values& values, int gbs, const Plan* plan = nullptr);

}  // namespace dflop
