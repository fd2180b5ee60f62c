// These functions declare and read --stage-gpu.
#pragma once

#include <cstddef>
#include <map>

#include "core/cluster.hpp"
#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Adds --stage-gpu.
void add_stage_gpu_option(Options& options);

/// Reads --stage-gpu: each value "S=CLUSTER" runs stage S on GPUs of the named cluster instead of the plan's
/// `cluster`. Returns these clusters by stage.
/// @throws Error (usage) for a value of a different form, or a stage that the plan does not have; what
/// find_cluster() throws
std::map<int, ClusterSpec> read_stage_gpus(const Values& values, const ClusterSpec& cluster,
                                           std::size_t stages);

}  // namespace dflop
