// cuBLASLt counts columns first: to it a row-major [rows, columns] is its transpose. So instead of
// result = left * right it computes result^T = right^T * left^T from the same memory; this file says
// everything in rows and swaps the two operands in one place, Library::multiply().
#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "core/error.hpp"
#include "core/support/shared_library.hpp"
#include "core/units.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/themes.hpp"

namespace dflop::cuda {
namespace {

/// A CublasLt has the functions of cuBLASLt that are used, as it documents them. The library is large (`ls
/// -lL` libcublasLt.so.13 says 540 MB), so it is loaded by the first who multiplies on a GPU.
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
const CublasLt& cublas_lt() {
  static const CublasLt functions;
  return functions;
}

/// Checks a call of the library.
/// @throws Error (internal) "<what>: <the library's reason>" where status is not success.
void check_lt(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::internal, what + ": cuBLASLt says " + cublas_lt().status_text(status));
}

/// An Operand is a row-major matrix [rows, columns], taken as it is or transposed.
struct Operand {
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool transposed = false;

  std::int64_t outer_rows() const { return transposed ? columns : rows; }
  std::int64_t outer_columns() const { return transposed ? rows : columns; }
  Strides strides() const { return transposed ? Strides{1, columns} : Strides{columns, 1}; }
};

Operand operand(ConstMatrix matrix, bool transposed = false) {
  return {matrix.data, matrix.rows, matrix.columns, transposed};
}

/// A Request asks for result[m, n] = left[m, k] * right[k, n], with a bias of n values, or added to a result
/// of sums.
struct Request {
  const char* operation;
  void* result;
  Operand left;
  Operand right;
  const void* bias = nullptr;
  bool add_to_sums = false;

  std::int64_t m() const { return left.outer_rows(); }
  std::int64_t n() const { return right.outer_columns(); }
  std::int64_t k() const { return left.outer_columns(); }
};

/// Returns the largest power of two up to 256 that divides an address, which is what algorithms ask for.
std::uint32_t alignment_of(const void* pointer) {
  std::uint32_t alignment = 256;
  while (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) alignment /= 2;
  return alignment;
}

/// Returns the same product of as many rows as the next multiple of kRows holds, where rows are tokens: rows
/// of the result, and what is added up in a gradient of weights. Microbatches have ever new numbers of them.
Request rounded(Request request) {
  constexpr std::int64_t kRows = 128;
  request.left.rows = round_up(request.left.rows, kRows);
  if (request.left.transposed) request.right.rows = request.left.rows;
  return request;
}

/// A Key is what decides about an algorithm: sizes, which operand is transposed, epilogue, alignments.
using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, bool, bool, std::uint32_t,
                       std::uint32_t, std::uint32_t, std::uint32_t>;

Key key_of(const Request& request) {
  return {request.m(),
          request.n(),
          request.k(),
          request.left.transposed,
          request.right.transposed,
          request.bias != nullptr,
          request.add_to_sums,
          alignment_of(request.left.data),
          alignment_of(request.right.data),
          alignment_of(request.result),
          alignment_of(request.bias)};
}

/// A Descriptor is one of the library's, given back with the object.
template <typename Handle>
using Descriptor = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

/// A Description describes one product to the library.
struct Description {
  const CublasLt& lt = cublas_lt();
  Descriptor<cublasLtMatmulDesc_t> product{nullptr, lt.destroy_product};
  Descriptor<cublasLtMatrixLayout_t> first{nullptr, lt.destroy_layout};
  Descriptor<cublasLtMatrixLayout_t> second{nullptr, lt.destroy_layout};
  Descriptor<cublasLtMatrixLayout_t> result{nullptr, lt.destroy_layout};

  Description(const Request& request, cudaDataType_t type, int multiprocessors) {
    const char* what = request.operation;
    cublasLtMatmulDesc_t made = nullptr;
    check_lt(lt.create_product(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
    product.reset(made);
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation_of(request.right), what);
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation_of(request.left), what);
    if (request.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS, what);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, request.bias, what);
    }
    if (multiprocessors > 0) {
      set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{multiprocessors}, what);
    }
    make_layout(first, type, request.right.rows, request.right.columns, what);
    make_layout(second, type, request.left.rows, request.left.columns, what);
    make_layout(result, request.add_to_sums ? CUDA_R_32F : type, request.m(), request.n(), what);
  }

 private:
  static cublasOperation_t operation_of(const Operand& operand) {
    return operand.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value, const char* what) {
    check_lt(lt.set_product(product.get(), attribute, &value, sizeof value), what);
  }
  void make_layout(Descriptor<cublasLtMatrixLayout_t>& layout, cudaDataType_t type, std::int64_t rows,
                   std::int64_t columns, const char* what) {
    const auto height = static_cast<std::uint64_t>(columns);  // the library's rows
    cublasLtMatrixLayout_t made = nullptr;
    check_lt(lt.create_layout(&made, type, height, static_cast<std::uint64_t>(rows), columns), what);
    layout.reset(made);
  }
};

/// Linear is what linear layers keep on one stream: cuBLASLt's handle, a workspace, and the algorithms found.
class Linear {
 public:
  Linear(const CudaTarget& target, int multiprocessors)
      : target_(target),
        multiprocessors_(multiprocessors),
        workspace_bytes_((multiprocessors > 0 ? std::size_t{4} : std::size_t{32}) << 20),
        workspace_(target, "workspace of linear",
                   static_cast<std::int64_t>(workspace_bytes_ / sizeof(float))) {
    check_lt(lt_.create(&handle_), "linear: start of the library");
  }
  ~Linear() { lt_.destroy(handle_); }
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;

  void run(const Request& request) {
    if (request.m() == 0 || request.n() == 0) return;
    if (request.k() > 0 && multiply(request)) return;
    plain_product(
        target_, request.operation,
        {request.m(), request.n(), request.k(), request.left.data, request.left.strides(), request.right.data,
         request.right.strides(), request.result, request.bias, request.add_to_sums});
  }

  const CudaTarget& target() const { return target_; }

 private:
  /// A key without an algorithm has a shape that the library does not take.
  using Algorithms = std::map<Key, std::optional<cublasLtMatmulAlgo_t>>;

  /// Returns the library's first choice for this request, or none. Other refusals than "not supported" are
  /// mistakes of this file, which plain products would hide at a hundredth of the speed.
  std::optional<cublasLtMatmulAlgo_t> find(const Request& request) {
    const Description description(request, type(), multiprocessors_);
    const char* what = request.operation;
    cublasLtMatmulPreference_t made = nullptr;
    check_lt(lt_.create_preference(&made), what);
    const Descriptor<cublasLtMatmulPreference_t> preference(made, lt_.destroy_preference);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_lt(lt_.set_preference(preference.get(), attribute, &value, sizeof value), what);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes_});
    // Parts of a product that are added up are f32, not of the result's type.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(request.right.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(request.left.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(request.result));
    // The epilogue reads the bias as wide as the result is written, and has no preference of its own.
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        std::min(alignment_of(request.result), alignment_of(request.bias)));
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    const cublasStatus_t status = lt_.find_algorithms(
        handle_, description.product.get(), description.first.get(), description.second.get(),
        description.result.get(), description.result.get(), preference.get(), 1, &found, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
    check_lt(status, what);
    if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return found.algo;
  }

  /// Returns false where the library has no algorithm for it; nothing was done then. Which algorithm it is
  /// depends on the request alone, so that a run repeats to the bit whatever came before.
  bool multiply(const Request& request) {
    const Description description(request, type(), multiprocessors_);
    return multiply_by(algorithms_, rounded(request), request, description) ||
           multiply_by(exact_algorithms_, request, request, description);
  }

  /// Multiplies by the choice for `like`, which is looked for once. Returns as multiply().
  bool multiply_by(Algorithms& known, const Request& like, const Request& request,
                   const Description& description) {
    const Key key = key_of(like);
    auto place = known.find(key);
    if (place == known.end()) place = known.emplace(key, find(like)).first;
    if (!place->second.has_value()) return false;
    const float one = 1.0f;
    const float kept = request.add_to_sums ? 1.0f : 0.0f;
    const cublasStatus_t status =
        lt_.multiply(handle_, description.product.get(), &one, request.right.data, description.first.get(),
                     request.left.data, description.second.get(), &kept, request.result,
                     description.result.get(), request.result, description.result.get(), &*place->second,
                     workspace_.data(), workspace_bytes_, target_.stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;  // which the choice did not foresee
    if (status == CUBLAS_STATUS_INVALID_VALUE && key != key_of(request)) return false;  // so of other sizes
    check_lt(status, request.operation);
    return true;
  }

  cudaDataType_t type() const { return target_.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

  const CublasLt& lt_ = cublas_lt();
  CudaTarget target_;
  int multiprocessors_;
  std::size_t workspace_bytes_;
  StreamBuffer workspace_;
  cublasLtHandle_t handle_ = nullptr;
  Algorithms algorithms_;        ///< by rounded requests
  Algorithms exact_algorithms_;  ///< of requests that those do not serve
};

void linear(Linear& layers, Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  const void* added = bias.columns > 0 ? bias.data : nullptr;
  layers.run({"linear", y.data, operand(x), operand(weight, true), added});
}

void linear_backward_input(Linear& layers, Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  layers.run({"linear_backward_input", dx.data, operand(dy), operand(weight)});
}

void linear_backward_weight(Linear& layers, Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x) {
  if (dy.rows == 0) return;
  constexpr const char* kOperation = "linear_backward_weight";
  layers.run({kOperation, dweight.data, operand(dy, true), operand(x), nullptr, true});
  // The library's epilogue is not used: it overwrites, and takes dbias in bf16 only.
  if (dbias.columns > 0) add_column_sums(layers.target(), kOperation, dbias, dy);
}

}  // namespace

std::shared_ptr<void> set_linear(Kernels& kernels, const CudaTarget& target, int multiprocessors) {
  auto layers = std::make_shared<Linear>(target, multiprocessors);
  kernels.linear.set<linear>(*layers);
  kernels.linear_backward_input.set<linear_backward_input>(*layers);
  kernels.linear_backward_weight.set<linear_backward_weight>(*layers);
  return layers;
}

}  // namespace dflop::cuda
