// All CUDA operations share these helpers. A CudaTarget says where to run, launch() starts a kernel, and a
// StreamBuffer holds temporaries that the kernels of one operation pass on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/kernels.hpp"

namespace dflop::cuda {

/// A block may use this many bytes of shared memory on every device without opting in.
inline constexpr std::size_t kUsualSharedBytes = std::size_t{48} * 1024;

struct CudaTarget {
  cudaStream_t stream = nullptr;
  DType dtype = DType::f32;                      ///< f32 or bf16
  cudaMemPool_t pool = nullptr;                  ///< pool of StreamBuffers
  std::size_t shared_bytes = kUsualSharedBytes;  ///< max shared memory of a block
  std::function<std::shared_ptr<void>(std::size_t bytes)> allocate =
      nullptr;  ///< CudaKernelOptions::allocate
};

template <typename T>
T* values_of(const Matrix& matrix) {
  return static_cast<T*>(matrix.data);
}
template <typename T>
const T* values_of(const ConstMatrix& matrix) {
  return static_cast<const T*>(matrix.data);
}
inline float* values_of(const Sums& sums) {
  return static_cast<float*>(sums.data);
}
inline const float* values_of(const ConstSums& sums) {
  return static_cast<const float*>(sums.data);
}

/// Returns the number of pieces of `size` that cover `total`: the quotient, rounded up.
constexpr std::int64_t pieces(std::int64_t total, std::int64_t size) {
  return (total + size - 1) / size;
}

/// Returns the first dimension of a grid with `blocks` blocks. @throws Error (internal) for no blocks, or
/// more than CUDA allows.
inline unsigned grid_size(const std::string& operation, std::int64_t blocks) {
  if (blocks > 0 && blocks <= 0x7fffffff) return static_cast<unsigned>(blocks);
  throw Error(
      ErrorKind::internal,
      std::to_string(blocks) + " blocks of a grid, expected 1 to 2147483647: use fewer rows in one call",
      operation);
}

/// Checks a call like check_cuda(), and clears its error so that the next launch does not report it again.
inline void check_start(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  check_cuda(status, what);
}

/// Starts a kernel on the target's stream. `shared_bytes` is dynamic shared memory.
/// @throws Error (internal) "<operation>: <CUDA's reason>", or if a block cannot have this much shared memory
template <typename... Parameters, typename... Arguments>
void launch(const CudaTarget& target, const char* operation, void (*kernel)(Parameters...), dim3 grid,
            dim3 block, std::size_t shared_bytes, Arguments... arguments) {
  if (shared_bytes > target.shared_bytes) {
    throw Error(ErrorKind::internal,
                "a block needs " + std::to_string(shared_bytes) + " bytes of shared memory, but has only " +
                    std::to_string(target.shared_bytes) + " on this device",
                operation);
  }
  if (shared_bytes > kUsualSharedBytes) {
    check_start(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
        operation);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = target.stream;
  check_start(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), operation);
}

/// A StreamBuffer is device memory from the target's pool. It is freed after all work that was enqueued in
/// the stream before the object was destroyed.
class StreamBuffer {
 public:
  StreamBuffer(const CudaTarget& target, const char* operation, std::int64_t floats)
      : stream_(target.stream) {
    if (floats == 0) return;
    const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
    const cudaError_t status = cudaMallocFromPoolAsync(&data_, bytes, target.pool, stream_);
    if (status == cudaSuccess) return;
    data_ = nullptr;
    check_start(status, std::string(operation) + ": " + std::to_string(bytes) + " bytes between its kernels");
  }
  ~StreamBuffer() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  float* data() const { return static_cast<float*>(data_); }

 private:
  cudaStream_t stream_ = nullptr;
  void* data_ = nullptr;
};

/// Returns memory for an operation's large temporaries. It is like a StreamBuffer's, but counts as the rank's
/// memory if the target has `allocate`.
inline std::shared_ptr<void> counted_memory(const CudaTarget& target, const char* operation,
                                            std::size_t bytes) {
  if (target.allocate != nullptr) return target.allocate(bytes);
  const auto buffer = std::make_shared<StreamBuffer>(target, operation,
                                                     pieces(static_cast<std::int64_t>(bytes), sizeof(float)));
  return {buffer, buffer->data()};
}

}  // namespace dflop::cuda
