// This makes the operations of one rank on a GPU, turns failures of the CUDA runtime into Errors, and finds
// its libraries. The header is for sources that are built with the toolkit only.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
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
};

/// Makes kernels of f32 or bf16. @throws Error (usage) for f64, Error (no_device) without cuBLASLt or a
/// device of compute capability 8.0 or newer.
std::unique_ptr<Kernels> make_cuda_kernels(DType dtype, const CudaKernelOptions& options);

}  // namespace dflop
