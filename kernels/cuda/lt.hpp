// The functions of cuBLASLt that are used. The library has 540 MB and takes a tenth of a second to load, so
// it is loaded by the first who multiplies on a GPU.
#pragma once

#include <cublasLt.h>

#include <string>

#include "core/error.hpp"

namespace dflop::cuda {

struct LtFunctions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  decltype(&cublasLtGetStatusString) status_text = nullptr;
};

/// Loads the library at the first call; later calls give the same table.
/// @throws Error (no_device) that says where it was looked for.
const LtFunctions& lt_functions();

/// @throws Error (internal) "<what>: <the library's reason>" where status is not success.
inline void check_lt(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::internal, what + ": cuBLASLt says " + lt_functions().status_text(status));
}

}  // namespace dflop::cuda
