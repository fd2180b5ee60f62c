// These functions declare and read the options that choose the kernels of a live run.
#pragma once

#include "experiments/cli/option_values.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/live_setup.hpp"

namespace dflop {

/// Adds --kernels and --kernels-file.
void add_kernel_options(Options& options);
/// Reads --kernels and --kernels-file. @throws Error (usage) if --kernels is learn and the device is
/// asynchronous; also if --partition is used with chosen kernels, because kernels are measured on whole
/// devices
KernelRequest read_kernel_request(const Values& values, const LiveDevice& device);

}  // namespace dflop
