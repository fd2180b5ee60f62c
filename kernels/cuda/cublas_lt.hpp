// This table has the functions of cuBLASLt that are used. The library has 540 MB and takes a tenth of a
// second to load, so it is loaded by the first who multiplies on a GPU.
#pragma once

#include <cublasLt.h>

#include <string>

#include "core/error.hpp"
#include "core/support/shared_library.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop::cuda {

/// A CublasLt has functions as cuBLASLt documents them.
struct CublasLt : FunctionTable {
  decltype(&cublasLtCreate) create = function("cublasLtCreate");
  decltype(&cublasLtDestroy) destroy = function("cublasLtDestroy");
  decltype(&cublasLtMatmulDescCreate) create_product = function("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescDestroy) destroy_product = function("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulDescSetAttribute) set_product = function("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) create_layout = function("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = function("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = function("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = function("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference =
      function("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms = function("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmul) multiply = function("cublasLtMatmul");
  decltype(&cublasLtGetStatusString) status_text = function("cublasLtGetStatusString");

  /// Loads the library. @throws Error (no_device) that says where it was looked for.
  CublasLt()
      : FunctionTable(SharedLibrary({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                                    cuda_folders(), "matrix products on a GPU (cuBLASLt)")) {}
};

/// Loads the library at the first call; later calls give the same functions.
inline const CublasLt& cublas_lt() {
  static const CublasLt functions;
  return functions;
}

/// Checks a call of the library.
/// @throws Error (internal) "<what>: <the library's reason>" where status is not success.
inline void check_lt(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::internal, what + ": cuBLASLt says " + cublas_lt().status_text(status));
}

}  // namespace dflop::cuda
