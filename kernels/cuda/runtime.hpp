// Errors of the CUDA runtime become Errors here, and CUDA's libraries are found. This header is for sources
// that are built with the toolkit only.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "core/error.hpp"

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

}  // namespace dflop
