// The parts of CUDA's runtime and kernel language that the kernels and their tests use, emulated on a CPU. A
// launch has completed when it returns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numbers>

#include "tests/cuda_on_host/emulation/block.hpp"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

// The runtime.

enum cudaEmulatedError {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidConfiguration
};
using cudaError_t = cudaEmulatedError;
const char* cudaGetErrorString(cudaError_t status);
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

using cudaStream_t = struct cudaEmulatedStream*;
using cudaMemPool_t = struct cudaEmulatedPool*;
enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum { cudaStreamNonBlocking };
enum { cudaDevAttrComputeCapabilityMajor, cudaDevAttrMaxSharedMemoryPerBlockOptin };
enum { cudaMemPoolAttrReleaseThreshold };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attribute, void* value);
cudaError_t cudaFuncSetAttribute(const void* kernel, int attribute, int value);

/// New memory is poisoned. It ends with guard bytes that are checked when it is freed.
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();

/// Kernels before the first synchronization run their warps forward, kernels before the next one backward,
/// then in random order, and so on. A new stream starts again with forward.
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
/// @throws std::runtime_error if memory outside of allocations was written
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

namespace dflop::emulation {
/// Runs all blocks. @throws std::runtime_error that describes the error of a block
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, const std::function<void()>& body);
}  // namespace dflop::emulation

template <typename... Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               std::type_identity_t<Parameters>... arguments) {
  return dflop::emulation::launch(*config, reinterpret_cast<const void*>(kernel),
                                  [&] { kernel(arguments...); });
}

// The kernel language. Shared memory is declared by the copies that copy_kernels.cmake makes.

struct float2 {
  float x;
  float y;
};
struct uint4 {
  unsigned x;
  unsigned y;
  unsigned z;
  unsigned w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

inline void __syncthreads() {
  dflop::emulation::block().wait_at(0);
}
inline int __syncthreads_or(int mine) {
  return static_cast<int>(dflop::emulation::block().wait_at(0, 0, mine != 0));
}
void __syncwarp();
unsigned __ballot_sync(unsigned lanes, int mine);

template <typename T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  struct Lane {
    T value;
    int distance;
    T other;
  } mine{value, distance, value};
  dflop::emulation::block().with_warp(mine, [](const auto& lanes) {
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      lanes[i]->other = lanes[i ^ static_cast<std::size_t>(lanes[i]->distance)]->value;
    }
  });
  return mine.other;
}

inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float normcdff(float x) {
  return static_cast<float>(std::erfc(x / -std::numbers::sqrt2) / 2.0);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
using std::min;
