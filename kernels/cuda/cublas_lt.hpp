// The functions of cuBLASLt that are used. The library has 540 MB and takes a tenth of a second to load, so
// it is loaded by the first who multiplies on a GPU.
#pragma once

#include <cublasLt.h>

#include <string>

#include "core/error.hpp"
#include "core/support/shared_library.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop::cuda {

struct CublasLt {
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

  /// @throws Error (no_device) that says where it was looked for.
  CublasLt() {
    const SharedLibrary library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}, cuda_folders(),
                                "matrix products on a GPU (cuBLASLt)");
    library.load(create, "cublasLtCreate");
    library.load(destroy, "cublasLtDestroy");
    library.load(create_product, "cublasLtMatmulDescCreate");
    library.load(destroy_product, "cublasLtMatmulDescDestroy");
    library.load(set_product, "cublasLtMatmulDescSetAttribute");
    library.load(create_layout, "cublasLtMatrixLayoutCreate");
    library.load(destroy_layout, "cublasLtMatrixLayoutDestroy");
    library.load(create_preference, "cublasLtMatmulPreferenceCreate");
    library.load(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    library.load(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    library.load(find_algorithms, "cublasLtMatmulAlgoGetHeuristic");
    library.load(multiply, "cublasLtMatmul");
    library.load(status_text, "cublasLtGetStatusString");
  }
};

/// Loads the library at the first call; later calls give the same functions.
inline const CublasLt& cublas_lt() {
  static const CublasLt functions;
  return functions;
}

/// @throws Error (internal) "<what>: <the library's reason>" where status is not success.
inline void check_lt(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::internal, what + ": cuBLASLt says " + cublas_lt().status_text(status));
}

}  // namespace dflop::cuda
