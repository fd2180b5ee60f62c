// These functions declare and read --stage-gpu.
#pragma once

#include <cstddef>
#include <map>

#include "core/cluster.hpp"
#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Adds --stage-gpu.
void add_stage_gpu_option(Options& options);

/// Reads "S=CLUSTER" for each stage that runs on the GPUs of another cluster than the plan's `cluster`.
/// @throws Error (usage) naming the option for another form or a stage that the plan does not have; Error
/// (input) as find_cluster().
std::map<int, ClusterSpec> read_stage_gpus(const Values& values, const ClusterSpec& cluster,
                                           std::size_t stages);

}  // namespace dflop
