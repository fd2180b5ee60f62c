// The functions of this header list the GPUs of this machine. In builds without CUDA they report that CUDA
// is missing.
#pragma once

#include <string>
#include <vector>

#include "core/units.hpp"

namespace dflop {

/// A GpuInfo describes one GPU as CUDA reports it.
struct GpuInfo {
  int index = 0;
  std::string name;
  int multiprocessors = 0;
  int compute_capability = 0;  ///< 90 for 9.0
  Bytes memory;
  Bytes free_memory;
};

/// Returns the number of CUDA devices. All CUDA code of the backend must call this function first, because
/// it sets two environment variables that CUDA reads at its first call. CUDA_DEVICE_MAX_CONNECTIONS requests
/// the max number of hardware queues; with fewer queues, streams of different ranks would wait for each
/// other. CUDA_MODULE_LOADING makes CUDA load all code at once; otherwise the first launch of each kernel
/// would wait for all other kernels. Variables that are already set are not changed.
/// @throws what cuda_devices() throws
int cuda_device_count();

/// Describes the CUDA device with this index and makes it the calling thread's current device. The call
/// allocates some memory on this device, which stays allocated until the process ends. It does not touch
/// other devices.
/// @throws Error (no_device)
GpuInfo cuda_device(int index);

/// Returns all usable CUDA devices.
/// @throws Error (no_device) if there is none; the message says whether the build, the driver or the device
/// is missing.
std::vector<GpuInfo> cuda_devices();

}  // namespace dflop
