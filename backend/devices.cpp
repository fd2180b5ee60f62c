#include "backend/devices.hpp"

#include "core/error.hpp"

#ifdef DFLOP_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace dflop {

#ifdef DFLOP_HAVE_CUDA

namespace {

void check(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess) {
    throw Error(ErrorKind::no_device, what + ": " + cudaGetErrorString(status));
  }
}

}  // namespace

std::vector<DeviceInfo> cuda_devices() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "no CUDA device can be used");
  if (count == 0) throw Error(ErrorKind::no_device, "the CUDA driver is there but no device");
  int current = 0;
  check(cudaGetDevice(&current), "the current device");
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index), "device " + std::to_string(index));
    check(cudaSetDevice(index), "device " + std::to_string(index));
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "device " + std::to_string(index));
    devices.push_back(
        {index, properties.name, properties.multiProcessorCount, properties.major * 10 + properties.minor,
         Bytes{static_cast<std::int64_t>(total_bytes)}, Bytes{static_cast<std::int64_t>(free_bytes)}});
  }
  check(cudaSetDevice(current), "device " + std::to_string(current));
  return devices;
}

#else

std::vector<DeviceInfo> cuda_devices() {
  throw Error(ErrorKind::no_device, "this dflop was built without CUDA; build with -DDFLOP_CUDA=ON");
}

#endif

}  // namespace dflop
