// This file makes the operations of one rank on a GPU. The header needs no CUDA; what it declares is there
// only in builds with it.
#pragma once

#include <memory>

#include "kernels/kernels.hpp"

namespace dflop {

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
