// OpenBLAS has its own matrix product kernels for each processor. Builds of it have no threads, their own
// threads, or OpenMP; a rank must not start any threads.
#include <memory>
#include <string>
#include <type_traits>

#include "core/support/shared_library.hpp"
#include "kernels/host/library_products.hpp"

namespace dflop::host {
namespace {

// These constants are CBLAS's.
constexpr int kRowMajor = 101;
constexpr int kAsStored = 111;
constexpr int kTransposed = 112;
constexpr int kOpenMp = 2;  // openblas_get_parallel()'s value for OpenMP

template <typename T>
using CblasMultiply = void (*)(int order, int transpose_a, int transpose_b, int rows, int columns, int inner,
                               T alpha, const T* a, int stride_a, const T* b, int stride_b, T beta, T* c,
                               int stride_c);

/// An OpenBlas holds the functions of the library that are used here. It is loaded if it is installed;
/// building does not need it.
struct OpenBlas : FunctionTable {
  CblasMultiply<float> multiply_f32 = function("cblas_sgemm");
  CblasMultiply<double> multiply_f64 = function("cblas_dgemm");
  const char* (*config)() = function("openblas_get_config");
  int (*parallel)() = function("openblas_get_parallel");
  void (*set_threads)(int) = function("openblas_set_num_threads");
  /// Sets the number of threads for the calling thread only, with OpenMP; null without OpenMP.
  void (*set_own_threads)(int) = nullptr;

  /// Loads the library and makes it compute only in the threads that call it. @throws Error (no_device) if it
  /// is not installed.
  OpenBlas() : FunctionTable(SharedLibrary({"libopenblas.so.0"}, {}, "matrix products (OpenBLAS)")) {
    set_threads(1);
    if (parallel() == kOpenMp) set_own_threads = function("omp_set_num_threads");
  }
};

/// Returns the library, or null if it is not installed. The first call loads it.
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
  const OpenBlas& library = *open_blas();
  if (library.set_own_threads != nullptr) {
    thread_local const bool alone = (library.set_own_threads(1), true);
    (void)alone;
  }
  multiply_of<T>(library)(kRowMajor, call.transposed_a ? kTransposed : kAsStored,
                          call.transposed_b ? kTransposed : kAsStored, whole(call.rows), whole(call.columns),
                          whole(call.inner), T(1), call.a, whole(call.stride_a()), call.b,
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

std::string openblas_version() {
  if (open_blas() == nullptr) return {};
  // The first two words are its name and version; the rest describes the processor type.
  const std::string config = open_blas()->config();
  return config.substr(0, config.find(' ', config.find(' ') + 1));
}

}  // namespace dflop::host
