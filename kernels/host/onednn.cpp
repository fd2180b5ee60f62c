// oneDNN compiles its matrix products for the processor on which it runs. It is built with OpenMP, and a rank
// must not start OpenMP's threads.
#include "kernels/host/onednn.hpp"

#ifdef DFLOP_HAVE_DNNL

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "core/support/shared_library.hpp"

namespace dflop::host {
namespace {

/// A OneDnn holds the functions of the library that this file uses. A library that was built with threads
/// other than OpenMP's lacks the last function and is not used.
struct OneDnn : FunctionTable {
  decltype(&dnnl_sgemm) multiply = function("dnnl_sgemm");
  decltype(&dnnl_version) version = function("dnnl_version");
  void (*set_threads)(int) = function("omp_set_num_threads");

  /// Loads the library. @throws Error (no_device) if it is not installed.
  OneDnn() : FunctionTable(SharedLibrary({"libdnnl.so.3", "libdnnl.so.2"}, {}, "matrix products (oneDNN)")) {}
};

/// Returns the library, or null if it is not installed. The first call loads it.
const OneDnn* one_dnn() {
  static const std::unique_ptr<const OneDnn> library = []() -> std::unique_ptr<const OneDnn> {
    try {
      return std::make_unique<const OneDnn>();
    } catch (const Error&) {
      return nullptr;
    }
  }();
  return library.get();
}

/// A ProductCall describes c[rows, columns] = a b or, with `add`, c += a b. All matrices are stored row after
/// row without gaps. a is stored as [rows, inner] or, if transposed, as [inner, rows]. b is stored as [inner,
/// columns] or, if transposed, as [columns, inner]. No size is 0.
struct ProductCall {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  const float* a = nullptr;
  bool transposed_a = false;
  const float* b = nullptr;
  bool transposed_b = false;
  float* c = nullptr;
  bool add = false;

  std::int64_t stride_a() const { return transposed_a ? rows : inner; }
  std::int64_t stride_b() const { return transposed_b ? inner : columns; }
  std::int64_t stride_c() const { return columns; }
};

const float* values_of(ConstMatrix matrix) {
  return static_cast<const float*>(matrix.data);
}

void multiply(const ProductCall& call) {
  const OneDnn& library = *one_dnn();
  // OpenMP keeps this number separately for each thread that it did not start.
  thread_local const bool alone = (library.set_threads(1), true);
  (void)alone;
  const dnnl_status_t status = library.multiply(
      call.transposed_a ? 'T' : 'N', call.transposed_b ? 'T' : 'N', call.rows, call.columns, call.inner, 1.0F,
      call.a, call.stride_a(), call.b, call.stride_b(), call.add ? 1.0F : 0.0F, call.c, call.stride_c());
  if (status != dnnl_success) {
    throw Error(ErrorKind::internal, "oneDNN's product failed with status " + std::to_string(status));
  }
}

/// Calls multiply(), and handles sizes of 0 itself.
void multiply_any(const ProductCall& call) {
  if (call.rows == 0 || call.columns == 0) return;
  if (call.inner > 0) {
    multiply(call);
  } else if (!call.add) {
    std::fill_n(call.c, call.rows * call.columns, 0.0F);
  }
}

void linear(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  auto* out = static_cast<float*>(y.data);
  const bool biased = bias.columns > 0;  // the product is then added to a copy in every row
  for (std::int64_t row = 0; biased && row < y.rows; ++row) {
    std::copy_n(values_of(bias), y.columns, out + row * y.columns);
  }
  multiply_any({.rows = y.rows,
                .columns = y.columns,
                .inner = x.columns,
                .a = values_of(x),
                .b = values_of(weight),
                .transposed_b = true,
                .c = out,
                .add = biased});
}

void linear_backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  multiply_any({.rows = dx.rows,
                .columns = dx.columns,
                .inner = dy.columns,
                .a = values_of(dy),
                .b = values_of(weight),
                .c = static_cast<float*>(dx.data)});
}

void linear_backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x, Beta beta) {
  multiply_any({.rows = dweight.rows,
                .columns = dweight.columns,
                .inner = dy.rows,
                .a = values_of(dy),
                .transposed_a = true,
                .b = values_of(x),
                .c = static_cast<float*>(dweight.data),
                .add = beta == Beta::one});
  if (dbias.columns == 0) return;
  auto* sum = static_cast<float*>(dbias.data);
  for (std::int64_t row = 0; row < dy.rows; ++row) {
    const float* gradient = values_of(dy) + row * dy.columns;
    for (std::int64_t column = 0; column < dy.columns; ++column) sum[column] += gradient[column];
  }
}

}  // namespace

void add_onednn(Kernels& kernels) {
  if (kernels.dtype() == DType::f32 && one_dnn() != nullptr) {
    kernels.linear.add<linear>("oneDNN");
    kernels.linear_backward_input.add<linear_backward_input>("oneDNN");
    kernels.linear_backward_weight.add<linear_backward_weight>("oneDNN");
  }
}

std::string onednn_version() {
  if (one_dnn() == nullptr) return {};
  const dnnl_version_t& version = *one_dnn()->version();
  return fmt::format("oneDNN {}.{}.{}", version.major, version.minor, version.patch);
}

}  // namespace dflop::host

#else

namespace dflop::host {

void add_onednn(Kernels&) {}

std::string onednn_version() {
  return {};
}

}  // namespace dflop::host

#endif
