#include "backend/gpus.hpp"

#include "core/error.hpp"

#ifdef DFLOP_HAVE_CUDA
#include <cuda_runtime_api.h>

#include <cstdlib>
#endif

namespace dflop {

#ifdef DFLOP_HAVE_CUDA

namespace {

void check(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess) {
    throw Error(ErrorKind::no_device, what + ": " + cudaGetErrorString(status));
  }
}

/// Asks for the max number of hardware queues, so that each stream gets one if possible, and for loading all
/// code at once: a kernel that is loaded at its first launch waits for all work on the GPU. CUDA reads these
/// variables when it is first used. Variables that the user has set are kept.
void ask_of_cuda() {
  // NOLINTBEGIN(concurrency-mt-unsafe): once, before CUDA and ranks start threads
  [[maybe_unused]] static const int queues = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  [[maybe_unused]] static const int loading = ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace

int cuda_device_count() {
  ask_of_cuda();
  int count = 0;
  check(cudaGetDeviceCount(&count), "no CUDA device can be used");
  if (count == 0) throw Error(ErrorKind::no_device, "the CUDA driver is installed, but finds no GPU");
  return count;
}

GpuInfo cuda_device(int index) {
  const int count = cuda_device_count();
  if (index < 0 || index >= count) {
    throw Error(ErrorKind::no_device,
                "there is no GPU " + std::to_string(index) + "; this machine has " + std::to_string(count));
  }
  const std::string device = "device " + std::to_string(index);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), device);
  check(cudaSetDevice(index), device);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), device);
  return {index,
          properties.name,
          properties.multiProcessorCount,
          properties.major * 10 + properties.minor,
          Bytes{static_cast<std::int64_t>(total_bytes)},
          Bytes{static_cast<std::int64_t>(free_bytes)}};
}

std::vector<GpuInfo> cuda_devices() {
  std::vector<GpuInfo> devices;
  const int count = cuda_device_count();
  int current = 0;
  check(cudaGetDevice(&current), "the current device");
  for (int index = 0; index < count; ++index) devices.push_back(cuda_device(index));
  check(cudaSetDevice(current), "device " + std::to_string(current));
  return devices;
}

#else

int cuda_device_count() {
  throw Error(ErrorKind::no_device, "this dflop was built without CUDA; build with -DDFLOP_CUDA=ON");
}

GpuInfo cuda_device(int) {
  cuda_device_count();
  return {};
}

std::vector<GpuInfo> cuda_devices() {
  cuda_device_count();
  return {};
}

#endif

}  // namespace dflop
