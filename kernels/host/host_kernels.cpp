#include "kernels/host/host_kernels.hpp"

#include "core/error.hpp"
#include "kernels/host/bf16.hpp"

namespace dflop {

// host_operations.cpp, compiled for each; f32 or f64.
namespace portable {
Kernels* new_kernels(DType dtype);
}
namespace avx2 {
Kernels* new_kernels(DType dtype);
}

HostTarget fastest_host_target() {
#ifdef DFLOP_HAVE_HOST_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return HostTarget::avx2;
#endif
  return HostTarget::portable;
}

std::unique_ptr<Kernels> make_host_kernels(DType dtype, HostTarget target) {
  if (dtype == DType::bf16) return make_bf16_kernels(make_host_kernels(DType::f32, target));
  if (target == HostTarget::portable) return std::unique_ptr<Kernels>(portable::new_kernels(dtype));
#ifdef DFLOP_HAVE_HOST_AVX2
  if (fastest_host_target() == HostTarget::avx2) return std::unique_ptr<Kernels>(avx2::new_kernels(dtype));
#endif
  throw Error(ErrorKind::no_device, "this processor has no AVX2 with fused multiply-add");
}

}  // namespace dflop
