// These functions load values as f32 and store them from f32, 16 bytes at a time if the rows' alignment
// allows it. each_value() calls a function for all values.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/launch.hpp"

namespace dflop::cuda {

using bf16 = __nv_bfloat16;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(bf16 x) {
  return __bfloat162float(x);
}
template <typename T>
__device__ T from_float(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return __float2bfloat16_rn(x);
  }
}

/// Calls f with a value whose type is the type of the target's matrices.
template <typename F>
void with_type(const CudaTarget& target, F f) {
  if (target.dtype == DType::bf16) {
    f(bf16());
  } else {
    f(float());
  }
}

/// kVector is the number of values of T in the 16 bytes that a thread moves at once.
template <typename T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

/// Neighbors are `width` adjacent values, which a thread loads or stores in as few instructions as possible.
template <typename T, int width>
struct alignas(sizeof(T) * width) Neighbors {
  T at[width];
};

template <int a, int b>
constexpr int kSmaller = a < b ? a : b;

/// Sets values = from[0, width), in f32. If width > 1, `from` must be aligned to 16 bytes or to `width`
/// values.
template <int width, typename T>
__device__ void load(float (&values)[width], const T* from) {
  constexpr int kStep = kSmaller<width, kVector<T>>;
#pragma unroll
  for (int first = 0; first < width; first += kStep) {
    const auto some = *reinterpret_cast<const Neighbors<T, kStep>*>(from + first);
#pragma unroll
    for (int i = 0; i < kStep; ++i) values[first + i] = to_float(some.at[i]);
  }
}

template <int width, typename T>
__device__ void store(T* to, const float (&values)[width]) {
  constexpr int kStep = kSmaller<width, kVector<T>>;
#pragma unroll
  for (int first = 0; first < width; first += kStep) {
    Neighbors<T, kStep> some;
#pragma unroll
    for (int i = 0; i < kStep; ++i) some.at[i] = from_float<T>(values[first + i]);
    *reinterpret_cast<Neighbors<T, kStep>*>(to + first) = some;
  }
}

/// Returns whether rows of `columns` values at these addresses can be accessed in 16-byte vectors of T.
template <typename T, typename... Pointers>
bool fit_vectors(std::int64_t columns, Pointers... pointers) {
  return columns % kVector<T> == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

/// A Width passes the number of values per call to a function, as the type of an argument.
template <int width>
struct Width {};

/// Calls f(Width<w>, first), which must handle the values [first, first + w).
template <int width, typename F>
__global__ void each_value_kernel(std::int64_t size, F f) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t first = thread * width;
  if (first + width <= size) {
    f(Width<width>(), first);
  } else {
    for (std::int64_t i = first; i < size; ++i) f(Width<1>(), i);
  }
}

/// Calls f for all values in [0, size), like each_value_kernel(): with `width` values per thread if
/// `aligned`, else with one.
template <int width, typename F>
void each_value(const CudaTarget& target, const char* operation, std::int64_t size, bool aligned, F f) {
  if (size == 0) return;
  constexpr unsigned kThreads = 256;
  const auto kernel = aligned ? each_value_kernel<width, F> : each_value_kernel<1, F>;
  const unsigned blocks = grid_size(operation, pieces(size, std::int64_t{kThreads} * (aligned ? width : 1)));
  launch(target, operation, kernel, blocks, kThreads, 0, size, f);
}

}  // namespace dflop::cuda
