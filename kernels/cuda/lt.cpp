#include "kernels/cuda/lt.hpp"

#include "core/support/shared_library.hpp"
#include "kernels/cuda/folders.hpp"

namespace dflop::cuda {
namespace {

LtFunctions load_functions() {
  const SharedLibrary library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}, cuda_folders(),
                              "matrix products on a GPU (cuBLASLt)");
  LtFunctions table;
  library.load(table.create, "cublasLtCreate");
  library.load(table.destroy, "cublasLtDestroy");
  library.load(table.create_product, "cublasLtMatmulDescCreate");
  library.load(table.destroy_product, "cublasLtMatmulDescDestroy");
  library.load(table.set_product, "cublasLtMatmulDescSetAttribute");
  library.load(table.create_layout, "cublasLtMatrixLayoutCreate");
  library.load(table.destroy_layout, "cublasLtMatrixLayoutDestroy");
  library.load(table.create_preference, "cublasLtMatmulPreferenceCreate");
  library.load(table.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  library.load(table.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  library.load(table.find_algorithms, "cublasLtMatmulAlgoGetHeuristic");
  library.load(table.multiply, "cublasLtMatmul");
  library.load(table.status_text, "cublasLtGetStatusString");
  return table;
}

}  // namespace

const LtFunctions& lt_functions() {
  static const LtFunctions table = load_functions();
  return table;
}

}  // namespace dflop::cuda
