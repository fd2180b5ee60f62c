#include <memory>
#include <type_traits>

#include "core/support/shared_library.hpp"
#include "kernels/host/library_products.hpp"

namespace dflop::host {
namespace {

// These are CBLAS's numbers.
constexpr int kRowMajor = 101;
constexpr int kAsStored = 111;
constexpr int kTransposed = 112;

template <typename T>
using CblasMultiply = void (*)(int order, int transpose_a, int transpose_b, int rows, int columns, int inner,
                               T alpha, const T* a, int stride_a, const T* b, int stride_b, T beta, T* c,
                               int stride_c);

/// An OpenBlas has the functions of the library that are used. It is loaded where it is installed, as nothing
/// of it is needed to build.
struct OpenBlas : FunctionTable {
  CblasMultiply<float> multiply_f32 = function("cblas_sgemm");
  CblasMultiply<double> multiply_f64 = function("cblas_dgemm");
  void (*set_threads)(int) = function("openblas_set_num_threads");

  /// Loads the library and keeps it to the calling thread. @throws Error (no_device) where there is none.
  OpenBlas() : FunctionTable(SharedLibrary({"libopenblas.so.0"}, {}, "matrix products (OpenBLAS)")) {
    set_threads(1);
  }
};

/// Returns the library, null where there is none, which the first call finds out.
const OpenBlas* open_blas() {
  static const std::unique_ptr<const OpenBlas> library = []() -> std::unique_ptr<const OpenBlas> {
    try {
      return std::make_unique<const OpenBlas>();
    } catch (const Error&) {
      return nullptr;
    }
  }();
  return library.get();
}

template <typename T>
CblasMultiply<T> multiply_of(const OpenBlas& library) {
  if constexpr (std::is_same_v<T, float>) {
    return library.multiply_f32;
  } else {
    return library.multiply_f64;
  }
}

template <typename T>
void multiply(const ProductCall<T>& call) {
  const auto whole = [](std::int64_t size) { return static_cast<int>(size); };
  multiply_of<T> (*open_blas())(
      kRowMajor, call.transposed_a ? kTransposed : kAsStored, call.transposed_b ? kTransposed : kAsStored,
      whole(call.rows), whole(call.columns), whole(call.inner), T(1), call.a, whole(call.stride_a()), call.b,
      whole(call.stride_b()), call.add ? T(1) : T(0), call.c, whole(call.stride_c()));
}

}  // namespace

void add_openblas(Kernels& kernels) {
  if (open_blas() == nullptr) return;
  if (kernels.dtype() == DType::f64) {
    add_linear_layers<double, multiply<double>>(kernels, "OpenBLAS");
  } else {
    add_linear_layers<float, multiply<float>>(kernels, "OpenBLAS");
  }
}

}  // namespace dflop::host
