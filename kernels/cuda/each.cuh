// Operations on every value alone.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {

/// How many neighbours are handled at once, as an argument.
template <int width>
struct Width {};

/// f(Width<w>, first) handles the values [first, first + w).
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

/// Runs f over [0, size), `width` values a thread where `aligned`.
template <int width, typename F>
void each_value(const CudaTarget& target, const char* operation, std::int64_t size, bool aligned, F f) {
  if (size == 0) return;
  constexpr unsigned kThreads = 256;
  if (aligned) {
    const unsigned blocks = grid_size(operation, pieces(size, std::int64_t{kThreads} * width));
    launch(target, operation, each_value_kernel<width, F>, blocks, kThreads, 0, size, f);
  } else {
    const unsigned blocks = grid_size(operation, pieces(size, kThreads));
    launch(target, operation, each_value_kernel<1, F>, blocks, kThreads, 0, size, f);
  }
}

}  // namespace dflop::cuda
