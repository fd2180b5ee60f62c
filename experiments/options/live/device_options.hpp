// These functions declare and read the options for the device and the computations of a live run.
#pragma once

#include "experiments/cli/option_values.hpp"
#include "experiments/training/live_setup.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// Adds --device, --partition, --dtype, --attention-sums and --attention-workspace.
void add_live_options(Options& options);
/// Reads the options of the device, which must be present. @throws Error (usage), (no_device)
LiveDevice read_live_device(const Values& values);
/// Like read_live_device(), but rejects devices that need several processes. @throws Error (usage),
/// (no_device)
LiveDevice read_local_device(const Values& values);
/// Reads --dtype. @throws Error (usage)
DType read_dtype(const Values& values);
/// Adds --cores and --device-cores.
void add_cores_option(Options& options);
/// Returns --cores, or default_cores() if it was not given; 0 means that ranks do not take turns on cores.
/// @throws Error (usage)
int read_cores(const Values& values, const LiveDevice& device);
/// Adds only --device-cores.
void add_device_cores_option(Options& options);
/// Reads --device-cores. @throws Error (usage) with a device other than the host
int read_device_cores(const Values& values, const LiveDevice& device);

}  // namespace dflop
