// oneDNN compiles its matrix products for the processor on which it runs. It is built with OpenMP, whose
// threads a rank must not start.
#include "kernels/host/library_products.hpp"

#ifdef DFLOP_HAVE_DNNL

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <memory>
#include <string>

#include "core/support/shared_library.hpp"

namespace dflop::host {
namespace {

/// An OneDnn holds the functions of the library that are used here. A library built with threads other than
/// OpenMP's lacks the last function and is not used.
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

void multiply(const ProductCall<float>& call) {
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

}  // namespace

void add_onednn(Kernels& kernels) {
  if (kernels.dtype() == DType::f32 && one_dnn() != nullptr) {
    add_linear_layers<float, multiply>(kernels, "oneDNN");
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
