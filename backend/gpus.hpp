// These functions tell the GPUs of this machine. Builds without CUDA have the functions too, which then say
// so.
#pragma once

#include <string>
#include <vector>

#include "core/units.hpp"

namespace dflop {

/// A GpuInfo says what CUDA tells of one GPU.
struct GpuInfo {
  int index = 0;
  std::string name;
  int multiprocessors = 0;
  int compute_capability = 0;  ///< 90 for 9.0
  Bytes memory;
  Bytes free_memory;
};

/// Returns how many CUDA devices there are. All of the backend that uses CUDA begins here: before CUDA's
/// first call the process asks it for as many hardware queues as there are (CUDA_DEVICE_MAX_CONNECTIONS), or
/// streams of different ranks would wait for each other, and to load all code at once (CUDA_MODULE_LOADING),
/// or the first start of a kernel would wait for all others. A variable that is set already stays.
/// @throws as cuda_devices()
int cuda_device_count();

/// Returns one CUDA device, which becomes the calling thread's current one. A process that asks takes some of
/// its memory until it ends; the others are not touched.
/// @throws Error (no_device)
GpuInfo cuda_device(int index);

/// Returns all CUDA devices that can be used now.
/// @throws Error (no_device) where there is none, saying whether the build, the driver or the device is
/// missing.
std::vector<GpuInfo> cuda_devices();

}  // namespace dflop
