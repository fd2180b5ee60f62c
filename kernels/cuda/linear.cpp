// cuBLASLt is column-major, so it sees a row-major matrix [rows, columns] as its transpose. Instead of result
// = left * right, it therefore computes result^T = right^T * left^T from the same memory. This file describes
// all matrices row-major; only Description and Linear swap the two operands.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "core/support/shared_library.hpp"
#include "core/units.hpp"
#include "kernels/cuda/flat_table.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/themes.hpp"

namespace dflop::cuda {
namespace {

/// A CublasLt holds the functions of cuBLASLt that this file uses. The library is large (`ls -lL`
/// libcublasLt.so.13 says 540 MB), so it is loaded only when a GPU first multiplies.
struct CublasLt : FunctionTable {
  decltype(&cublasLtCreate) create = function("cublasLtCreate");
  decltype(&cublasLtDestroy) destroy = function("cublasLtDestroy");
  decltype(&cublasLtMatmulDescCreate) create_product = function("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescDestroy) destroy_product = function("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulDescSetAttribute) set_product = function("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) create_layout = function("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = function("cublasLtMatrixLayoutSetAttribute");
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = function("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = function("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = function("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference =
      function("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms = function("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmul) multiply = function("cublasLtMatmul");
  decltype(&cublasLtGetStatusString) status_text = function("cublasLtGetStatusString");

  /// Loads the library. @throws Error (no_device) that lists the places searched.
  CublasLt()
      : FunctionTable(SharedLibrary({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                                    cuda_folders(), "matrix products on a GPU (cuBLASLt)")) {}
};

/// Loads the library at the first call. Later calls return the same functions.
const CublasLt& cublas_lt() {
  static const CublasLt functions;
  return functions;
}

/// Checks the status of a library call.
/// @throws Error (internal) "<what>: <the library's reason>" if status is not success.
void check_lt(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorKind::internal, what + ": cuBLASLt says " + cublas_lt().status_text(status));
}

/// An Operand is a row-major matrix [rows, columns], used directly or transposed.
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

/// A Request asks for result[m, n] = left[m, k] * right[k, n], plus a bias of n values or beta times the old
/// result. With `to_sums`, the result is f32.
struct Request {
  const char* operation;
  void* result;
  Operand left;
  Operand right;
  const void* bias = nullptr;
  bool to_sums = false;
  Beta beta = Beta::zero;

  std::int64_t m() const { return left.outer_rows(); }
  std::int64_t n() const { return right.outer_columns(); }
  std::int64_t k() const { return left.outer_columns(); }
};

/// Returns the largest power of two up to 256 that divides an address. Algorithms have min alignments.
std::uint32_t alignment_of(const void* pointer) {
  std::uint32_t alignment = 256;
  while (reinterpret_cast<std::uintptr_t>(pointer) % alignment != 0) alignment /= 2;
  return alignment;
}

/// Returns the request with its number of tokens rounded up to a multiple of kRows, so that microbatches with
/// different numbers of tokens share a plan. Tokens are the rows of the result or, for a weight gradient, the
/// inner dimension.
Request rounded(Request request) {
  constexpr std::int64_t kRows = 128;
  request.left.rows = round_up(request.left.rows, kRows);
  if (request.left.transposed) request.right.rows = request.left.rows;
  return request;
}

/// Returns the key of the properties that decide which algorithms fit: sizes, transposed operand, epilogue
/// and alignments. @pre fits_key()
PackedKey key_of(const Request& request) {
  std::uint64_t high = static_cast<std::uint64_t>(request.k());
  const auto append = [&](unsigned bits, std::uint64_t value) { high = high << bits | value; };
  append(1, static_cast<std::uint64_t>(request.left.transposed));
  append(1, static_cast<std::uint64_t>(request.right.transposed));
  append(1, static_cast<std::uint64_t>(request.bias != nullptr));
  append(1, static_cast<std::uint64_t>(request.to_sums));
  for (const void* pointer :
       {request.left.data, request.right.data, static_cast<const void*>(request.result), request.bias}) {
    append(4, static_cast<std::uint64_t>(std::countr_zero(alignment_of(pointer))));
  }
  return {static_cast<std::uint64_t>(request.m()) << 32U | static_cast<std::uint64_t>(request.n()), high};
}

/// Returns whether a key has capacity for the rounded sizes.
bool fits_key(const Request& request) {
  constexpr std::int64_t kMax = 0x7fffff00;
  return request.m() <= kMax && request.n() <= kMax && request.k() <= kMax;
}

/// A Descriptor owns a descriptor of the library and destroys it with the object.
template <typename Handle>
using Descriptor = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

/// A Description describes a product to the library. describe_rows() replaces the sizes for which it was
/// made.
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
    if (request.bias != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS, what);
    if (multiprocessors > 0) {
      set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{multiprocessors}, what);
    }
    make_layout(first, type, request.right.rows, request.right.columns, what);
    make_layout(second, type, request.left.rows, request.left.columns, what);
    make_layout(result, request.to_sums ? CUDA_R_32F : type, request.m(), request.n(), what);
    describe_rows(request);
  }

  /// Describes a request that differs only in its matrices' rows and addresses.
  void describe_rows(const Request& request) {
    const char* what = request.operation;
    if (request.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, request.bias, what);
    set_rows(first, request.right.rows, what);
    set_rows(second, request.left.rows, what);
    set_rows(result, request.m(), what);
  }

 private:
  static cublasOperation_t operation_of(const Operand& operand) {
    return operand.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value, const char* what) {
    check_lt(lt.set_product(product.get(), attribute, &value, sizeof value), what);
  }
  void set_rows(const Descriptor<cublasLtMatrixLayout_t>& layout, std::int64_t rows, const char* what) {
    const auto width = static_cast<std::uint64_t>(rows);  // the library's columns
    check_lt(lt.set_layout(layout.get(), CUBLASLT_MATRIX_LAYOUT_COLS, &width, sizeof width), what);
  }
  void make_layout(Descriptor<cublasLtMatrixLayout_t>& layout, cudaDataType_t type, std::int64_t rows,
                   std::int64_t columns, const char* what) {
    const auto height = static_cast<std::uint64_t>(columns);  // the library's rows
    cublasLtMatrixLayout_t made = nullptr;
    check_lt(lt.create_layout(&made, type, height, static_cast<std::uint64_t>(rows), columns), what);
    layout.reset(made);
  }
};

/// kVariants is the number of the library's choices that can be variants. The first is the default.
constexpr int kVariants = 16;

/// A Plan holds the description of products with one key and the algorithms that the library chose for them,
/// best first by its own estimate. If there is none, the library does not support the product.
struct Plan {
  Description description;
  std::array<cublasLtMatmulAlgo_t, kVariants> algorithms = {};
  int count = 0;
};

/// Linear is the state of linear layers on one stream: cuBLASLt's handle, a workspace and the plans so far.
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

  /// Multiplies with algorithm number `variant` of the library's choices. Uses the first algorithm if there
  /// are fewer, or if that one does not support the number of rows; and plain_product() if the library has
  /// none.
  void run(const Request& request, int variant) {
    if (request.m() == 0 || request.n() == 0) return;
    if (request.k() > 0 && fits_key(request) &&
        (multiply(request, variant) || (variant > 0 && multiply(request, 0)))) {
      return;
    }
    plain_product(
        target_, request.operation,
        {request.m(), request.n(), request.k(), request.left.data, request.left.strides(), request.right.data,
         request.right.strides(), request.result, request.bias, request.to_sums, request.beta});
  }

  const CudaTarget& target() const { return target_; }

 private:
  /// Asks the library for its choices. Any error other than "not supported" is a bug in this file and is
  /// thrown; falling back to plain products would hide it at a hundredth of the speed.
  std::unique_ptr<Plan> make_plan(const Request& request) {
    auto plan = std::make_unique<Plan>(Plan{Description(request, type(), multiprocessors_)});
    const Description& description = plan->description;
    const char* what = request.operation;
    cublasLtMatmulPreference_t made = nullptr;
    check_lt(lt_.create_preference(&made), what);
    const Descriptor<cublasLtMatmulPreference_t> preference(made, lt_.destroy_preference);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_lt(lt_.set_preference(preference.get(), attribute, &value, sizeof value), what);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes_});
    // Partial products are added up in f32, not in the result's type.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(request.right.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(request.left.data));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(request.result));
    // The epilogue reads the bias with the vector width with which it writes the result. The bias has no
    // alignment preference of its own.
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        std::min(alignment_of(request.result), alignment_of(request.bias)));
    std::array<cublasLtMatmulHeuristicResult_t, kVariants> found = {};
    int count = 0;
    const cublasStatus_t status =
        lt_.find_algorithms(handle_, description.product.get(), description.first.get(),
                            description.second.get(), description.result.get(), description.result.get(),
                            preference.get(), kVariants, found.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return plan;
    check_lt(status, what);
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& choice = found[static_cast<std::size_t>(i)];
      if (choice.state != CUBLAS_STATUS_SUCCESS) continue;
      plan->algorithms[static_cast<std::size_t>(plan->count++)] = choice.algo;
    }
    return plan;
  }

  /// Returns false, and does nothing, if the library has no algorithm. The algorithm depends only on the
  /// request and the variant, not on earlier calls, so repeated runs are bit-identical.
  bool multiply(const Request& request, int variant) {
    return multiply_by(rounded(request), request, variant) || multiply_by(request, request, variant);
  }

  /// Multiplies with an algorithm that was chosen for `like`; the library is asked only once for each key.
  /// Returns false, and does nothing, if there is no algorithm or if it does not support `request`.
  bool multiply_by(const Request& like, const Request& request, int variant) {
    const PackedKey key = key_of(like);
    Plan& plan = plans_.get(key, [&] { return make_plan(like); });
    if (plan.count == 0) return false;
    plan.description.describe_rows(request);
    const cublasLtMatmulAlgo_t& algorithm =
        plan.algorithms[static_cast<std::size_t>(variant < plan.count ? variant : 0)];
    const Description& description = plan.description;
    const float one = 1.0f;
    const float kept = request.beta == Beta::one ? 1.0f : 0.0f;
    const cublasStatus_t status =
        lt_.multiply(handle_, description.product.get(), &one, request.right.data, description.first.get(),
                     request.left.data, description.second.get(), &kept, request.result,
                     description.result.get(), request.result, description.result.get(), &algorithm,
                     workspace_.data(), workspace_bytes_, target_.stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;  // the library's choice did not predict this
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
  FlatTable<Plan> plans_;  ///< by rounded requests, and by exact ones that their choices do not support
};

template <int variant>
void linear(Linear& layers, Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  const void* added = bias.columns > 0 ? bias.data : nullptr;
  layers.run({"linear", y.data, operand(x), operand(weight, true), added}, variant);
}

template <int variant>
void linear_backward_input(Linear& layers, Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  layers.run({"linear_backward_input", dx.data, operand(dy), operand(weight)}, variant);
}

template <int variant>
void linear_backward_weight(Linear& layers, Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x,
                            Beta beta) {
  if (dy.rows == 0 && beta == Beta::one) return;
  constexpr const char* kOperation = "linear_backward_weight";
  layers.run({kOperation, dweight.data, operand(dy, true), operand(x), nullptr, true, beta}, variant);
  // The library's epilogue is not used, because it overwrites dbias and supports it only in bf16.
  if (dbias.columns > 0) add_column_sums(layers.target(), kOperation, dbias, dy);
}

/// These are the names of the variants after the default.
constexpr std::array<std::string_view, kVariants - 1> kChoices = {
    "cublaslt-2",  "cublaslt-3",  "cublaslt-4",  "cublaslt-5",  "cublaslt-6",
    "cublaslt-7",  "cublaslt-8",  "cublaslt-9",  "cublaslt-10", "cublaslt-11",
    "cublaslt-12", "cublaslt-13", "cublaslt-14", "cublaslt-15", "cublaslt-16"};

template <int... choices>
void add_choices(Kernels& kernels, Linear& layers, std::integer_sequence<int, choices...>) {
  (kernels.linear.add<linear<choices + 1>>(kChoices[choices], layers), ...);
  (kernels.linear_backward_input.add<linear_backward_input<choices + 1>>(kChoices[choices], layers), ...);
  (kernels.linear_backward_weight.add<linear_backward_weight<choices + 1>>(kChoices[choices], layers), ...);
}

}  // namespace

std::shared_ptr<void> set_linear(Kernels& kernels, const CudaTarget& target, int multiprocessors) {
  auto layers = std::make_shared<Linear>(target, multiprocessors);
  kernels.linear.set<linear<0>>(*layers);
  kernels.linear_backward_input.set<linear_backward_input<0>>(*layers);
  kernels.linear_backward_weight.set<linear_backward_weight<0>>(*layers);
  add_choices(kernels, *layers, std::make_integer_sequence<int, kVariants - 1>());
  return layers;
}

}  // namespace dflop::cuda
