// These operations convert numbers from the types in files to values and sums.
#include <cmath>

#include "core/support/half.hpp"
#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

struct F16 {
  std::uint16_t bits;
};
struct F64 {
  double number;
};

__device__ float to_float(F16 x) {
  return from_f16(x.bits);
}
/// Rounds to the nearest f32; numbers beyond the largest f32 become infinite.
__device__ float to_float(F64 x) {
  return static_cast<float>(x.number);
}

/// Returns whether a stored number, `value` in f32, is finite. An f64 number can be finite although its f32
/// value is not.
template <typename Stored>
__device__ bool is_finite(const Stored*, float value) {
  return std::isfinite(value);
}
__device__ bool is_finite(const F64* x, float) {
  return std::isfinite(x->number);
}

/// An Unpack converts stored numbers. If `not_finite` is not null, it sets *not_finite to 1 if a number is
/// not finite.
template <typename T, typename Stored>
struct Unpack {
  T* y;
  const Stored* x;
  float* not_finite;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float values[width];
    load(values, x + first);
    store(y + first, values);
    if (not_finite == nullptr) return;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < width; ++i) finite = finite && is_finite(x + first + i, values[i]);
    if (!finite) *not_finite = 1.0f;  // a harmless race: all threads write the same value
  }
};

template <typename T>
void unpack(const CudaTarget& target, const char* operation, T* y, const StoredNumbers& x,
            float* not_finite) {
  with_numbers<F64, float, F16, bf16>(x, [&](const auto* numbers) {
    const Unpack<T, std::remove_cvref_t<decltype(*numbers)>> f{y, numbers, not_finite};
    each_value<kVector<T>>(target, operation, x.count, fit_vectors<T>(0, y, numbers), f);
  });
}

void unpack_values(const CudaTarget& target, Matrix y, Sums not_finite, const StoredNumbers& x) {
  with_type(target, [&](auto type) {
    unpack(target, "unpack_values", values_of<decltype(type)>(y), x, values_of(not_finite));
  });
}

void unpack_sums(const CudaTarget& target, Sums y, const StoredNumbers& x) {
  unpack(target, "unpack_sums", values_of(y), x, nullptr);
}

}  // namespace

void set_unpack(Kernels& kernels, const CudaTarget& target) {
  kernels.unpack_values.set<unpack_values>(target);
  kernels.unpack_sums.set<unpack_sums>(target);
}

}  // namespace dflop::cuda
