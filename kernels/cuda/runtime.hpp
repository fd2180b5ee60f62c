// make_cuda_kernels() makes the kernels of one rank on a GPU. This header also turns CUDA runtime failures
// into Errors and lists the folders of CUDA's libraries. Include it only in sources that are built with the
// CUDA toolkit.
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

/// Checks the status of a runtime call.
/// @throws Error (internal) "<what>: <CUDA's reason>" if status is not success.
inline void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorKind::internal, what + ": " + cudaGetErrorString(status));
}

/// Returns the folders to search for libraries that are loaded on first use, in addition to the dynamic
/// linker's paths.
inline std::vector<std::string> cuda_folders() {
  return {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
}

struct CudaKernelOptions {
  /// This is a cudaStream_t that outlives the kernels. Its device must be the current one in every call.
  void* stream = nullptr;
  int multiprocessors = 0;  ///< number of them that the stream may use; 0: all of the device
  void* pool = nullptr;     ///< cudaMemPool_t for temporaries; outlives the kernels. Null: the device's
  int shared_bytes = 0;     ///< max shared memory of a block; 0: the device's limit
  AttentionOptions attention = {};
  /// This function allocates large temporaries of operations, so that they count as the rank's memory.
  /// Kernels release a temporary only after all work that uses it is in the stream. Null: they come from the
  /// pool.
  std::function<std::shared_ptr<void>(std::size_t bytes)> allocate = nullptr;
};

/// Makes f32 or bf16 kernels. @throws Error (usage) for f64, Error (no_device) if cuBLASLt or a device of
/// compute capability 8.0 or newer is missing.
std::unique_ptr<Kernels> make_cuda_kernels(DType dtype, const CudaKernelOptions& options);

/// Returns the name and version of the library that computes attention when attention_way() chooses a
/// library, such as "cuDNN 9.19.0". Empty if none was built in or found. The kernels' results and speed
/// depend on it.
std::string attention_library();

}  // namespace dflop
