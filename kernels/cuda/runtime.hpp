// This makes the operations of one rank on a GPU, turns failures of the CUDA runtime into Errors, and finds
// its libraries. The header is for sources that are built with the toolkit only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "kernels/attention_options.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// Checks a call of the runtime.
/// @throws Error (internal) "<what>: <CUDA's reason>" where status is not success.
inline void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorKind::internal, what + ": " + cudaGetErrorString(status));
}

/// Returns where libraries are looked for that are loaded when they are first used, beside the places that
/// the dynamic linker knows.
inline std::vector<std::string> cuda_folders() {
  return {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
}

struct CudaKernelOptions {
  /// This is a cudaStream_t that outlives the kernels, and whose device is the current one in every call.
  void* stream = nullptr;
  int multiprocessors = 0;  ///< that the stream may use; 0: all of the device
  void* pool = nullptr;     ///< cudaMemPool_t for memory within operations; outlives them. None: the device's
  int shared_bytes = 0;     ///< of shared memory that a block may have; 0: what the device gives
  AttentionOptions attention = {};
  /// This gives memory for large temporaries of operations, so that it counts as the rank's. Who lets go of
  /// it has put all work with it into the stream. Null: it is the pool's.
  std::function<std::shared_ptr<void>(std::size_t bytes)> allocate = nullptr;
};

/// Makes kernels of f32 or bf16. @throws Error (usage) for f64, Error (no_device) without cuBLASLt or a
/// device of compute capability 8.0 or newer.
std::unique_ptr<Kernels> make_cuda_kernels(DType dtype, const CudaKernelOptions& options);

/// Returns the library that computes attention where attention_way() says so, "cuDNN 9.19.0"; empty where
/// none was built in or none is found. What a device's kernels compute, and how fast, depends on it.
std::string attention_library();

}  // namespace dflop
