// A block per row. It reads the row once from memory and again from the first-level cache.
#include "kernels/cuda/operations.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

constexpr int kThreads = 256;

/// One row, as the threads of a block go over it: f(column, values of width).
template <int width, typename T, typename F>
__device__ void for_row(const T* row, std::int64_t columns, F f) {
  for (std::int64_t column = threadIdx.x * width; column < columns; column += kThreads * width) {
    float values[width];
    load(values, row + column);
    f(column, values);
  }
}

/// With `centred`, layer_norm: the mean is taken off and beta added.
template <bool centred, int width, typename T>
__global__ void __launch_bounds__(kThreads) norm_kernel(T* y, float* statistics, const T* x, const T* gamma,
                                                        const T* beta, std::int64_t columns, float epsilon) {
  const std::int64_t row = blockIdx.x;
  const T* in = x + row * columns;
  T* out = y + row * columns;
  float mean = 0.0f;
  if constexpr (centred) {
    float sum = 0.0f;
    for_row<width>(in, columns, [&](std::int64_t, const float(&values)[width]) {
#pragma unroll
      for (const float value : values) sum += value;
    });
    mean = reduce_block(sum, 0.0f, Add()) / static_cast<float>(columns);
  }
  float squares = 0.0f;
  for_row<width>(in, columns, [&](std::int64_t, const float(&values)[width]) {
#pragma unroll
    for (const float value : values) squares += (value - mean) * (value - mean);
  });
  const float variance = reduce_block(squares, 0.0f, Add()) / static_cast<float>(columns);
  const float rstd = 1.0f / sqrtf(variance + epsilon);
  for_row<width>(in, columns, [&](std::int64_t column, float(&values)[width]) {
    float scales[width];
    float shifts[width] = {};
    load(scales, gamma + column);
    if constexpr (centred) load(shifts, beta + column);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = (values[i] - mean) * rstd * scales[i] + shifts[i];
    store(out + column, values);
  });
  if (threadIdx.x != 0) return;
  if constexpr (centred) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = rstd;
  } else {
    statistics[row] = rstd;
  }
}

template <bool centred>
void norm(const CudaTarget& target, const char* operation, Matrix y, Sums statistics, ConstMatrix x,
          ConstMatrix gamma, ConstMatrix beta, double epsilon) {
  if (x.rows == 0) return;
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const bool vectors = fit_vectors<T>(x.columns, y.data, x.data, gamma.data, beta.data);
    const auto kernel = vectors ? norm_kernel<centred, kVector<T>, T> : norm_kernel<centred, 1, T>;
    launch(target, operation, kernel, grid_size(operation, x.rows), kThreads, 0, values_of<T>(y),
           values_of(statistics), values_of<T>(x), values_of<T>(gamma), values_of<T>(beta), x.columns,
           static_cast<float>(epsilon));
  });
}

}  // namespace

void layer_norm(const CudaTarget& target, Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma,
                ConstMatrix beta, double epsilon) {
  norm<true>(target, "layer_norm", y, statistics, x, gamma, beta, epsilon);
}

void rms_norm(const CudaTarget& target, Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma,
              double epsilon) {
  norm<false>(target, "rms_norm", y, statistics, x, gamma, ConstMatrix(), epsilon);
}

}  // namespace dflop::cuda
