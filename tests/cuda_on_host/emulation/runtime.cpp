#include <cuda_runtime_api.h>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

using dflop::emulation::block;
using dflop::emulation::kMaxShared;
using dflop::emulation::WarpOrder;

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMargin = 256;  ///< guard bytes after each allocation
constexpr char kUntouched = 0x5a;
constexpr std::size_t kUsualShared = std::size_t{48} * 1024;

std::map<void*, std::size_t> memories;                 ///< allocations and their bytes
std::map<const void*, std::size_t> shared_of_kernels;  ///< kernels that opted in to more shared memory
std::string failure;
int turn = 0;  ///< index of the current warp order

}  // namespace

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
  }
  return "unknown error";
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : static_cast<int>(kMaxShared);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, int, void*) {
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, int, int value) {
  if (static_cast<std::size_t>(value) > kMaxShared) return cudaErrorInvalidValue;
  shared_of_kernels[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (posix_memalign(memory, kAlignment, bytes + kMargin) != 0) return cudaErrorMemoryAllocation;
  std::memset(*memory, dflop::emulation::kPoison, bytes);
  std::memset(static_cast<char*>(*memory) + bytes, kUntouched, kMargin);
  memories[*memory] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const auto place = memories.find(memory);
  if (place == memories.end()) return memory == nullptr ? cudaSuccess : cudaErrorInvalidValue;
  const char* margin = static_cast<const char*>(memory) + place->second;
  if (!std::all_of(margin, margin + kMargin, [](char byte) { return byte == kUntouched; })) {
    failure = "memory behind " + std::to_string(place->second) + " bytes of the device was written";
  }
  memories.erase(place);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  return cudaFree(memory);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, int) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, int) {
  *stream = nullptr;
  turn = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  turn = (turn + 1) % 3;
  if (!failure.empty()) throw std::runtime_error(std::exchange(failure, {}));
  return cudaSuccess;
}

cudaError_t dflop::emulation::launch(const cudaLaunchConfig_t& config, const void* kernel,
                                     const std::function<void()>& body) {
  constexpr WarpOrder kOrders[] = {WarpOrder::forward, WarpOrder::backward, WarpOrder::drawn};
  constexpr unsigned kMaxRows = 65535;  // max of a grid's y dimension; x is limited by a signed integer
  const dim3 grid = config.gridDim;
  const dim3 threads = config.blockDim;
  const auto count = std::uint64_t{threads.x} * threads.y * threads.z;
  if (count == 0 || count > kMaxThreads || grid.x == 0 || grid.x > 0x7fffffffU || grid.y == 0 ||
      grid.y > kMaxRows || grid.z == 0 || grid.z > kMaxRows) {
    return cudaErrorInvalidConfiguration;
  }
  const auto asked = shared_of_kernels.find(kernel);
  if (config.dynamicSmemBytes > (asked == shared_of_kernels.end() ? kUsualShared : asked->second)) {
    return cudaErrorInvalidValue;
  }
  gridDim = grid;
  blockDim = threads;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        block().run(threads, config.dynamicSmemBytes, kOrders[turn], body);
      }
    }
  }
  return cudaSuccess;
}

void __syncwarp() {
  char none = 0;
  block().with_warp(none, [](const auto&) {});
}

unsigned __ballot_sync(unsigned, int mine) {
  struct Lane {
    bool mine;
    unsigned all;
  } own{mine != 0, 0};
  block().with_warp(own, [](const auto& lanes) {
    unsigned all = 0;
    for (std::size_t i = 0; i < lanes.size(); ++i) all |= static_cast<unsigned>(lanes[i]->mine) << i;
    for (Lane* lane : lanes) lane->all = all;
  });
  return own.all;
}
