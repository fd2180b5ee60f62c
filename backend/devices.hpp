// The GPUs of this machine.
#pragma once

#include <string>
#include <vector>

#include "core/units.hpp"

namespace dflop {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int multiprocessors = 0;
  int compute_capability = 0;  ///< 90 for 9.0
  Bytes memory;
  Bytes free_memory;
};

/// How many CUDA devices there are. All of the backend that uses CUDA begins here: before CUDA's first call
/// the process asks it for as many hardware queues as there are, with CUDA_DEVICE_MAX_CONNECTIONS unless that
/// is set, or streams of different ranks would wait for each other. @throws as cuda_devices()
int cuda_device_count();

/// One of them, which becomes the calling thread's current one. A process that asks takes some of its memory
/// until it ends; the others are not touched.
/// @throws Error (no_device)
DeviceInfo cuda_device(int index);

/// All CUDA devices that can be used now.
/// @throws Error (no_device) where there is none, saying whether the build, the driver or the device is
/// missing.
std::vector<DeviceInfo> cuda_devices();

}  // namespace dflop
