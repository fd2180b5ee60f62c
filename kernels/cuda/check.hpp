// Errors of the CUDA runtime. For sources that are built with the toolkit only.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/error.hpp"

namespace dflop {

/// @throws Error (internal) "<what>: <CUDA's reason>" where status is not success.
inline void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorKind::internal, what + ": " + cudaGetErrorString(status));
}

}  // namespace dflop
