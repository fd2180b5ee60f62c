// Sums of columns in two stages, always in the same order.
#include <algorithm>

#include "kernels/cuda/operations.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

constexpr int kGroupThreads = 8;  ///< that share the rows of one group
constexpr int kPartThreads = 16;  ///< that share the parts of one column
constexpr std::int64_t kGroups = 256;

/// Of `rows_of_group` rows from the block's first on: the sums of kWarp * width columns.
template <int width, typename T>
__global__ void __launch_bounds__(kWarp* kGroupThreads)
    group_sums_kernel(float* partial, const T* x, std::int64_t rows, std::int64_t columns,
                      std::int64_t rows_of_group) {
  __shared__ float shared[kGroupThreads][kWarp * width];
  const std::int64_t column = (std::int64_t{blockIdx.x} * kWarp + threadIdx.x) * width;
  const std::int64_t first = blockIdx.y * rows_of_group;
  const std::int64_t last = first + rows_of_group < rows ? first + rows_of_group : rows;
  float sum[width] = {};
  if (column < columns) {
    for (std::int64_t row = first + threadIdx.y; row < last; row += kGroupThreads) {
      float values[width];
      load(values, x + row * columns + column);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < width; ++i) shared[threadIdx.y][threadIdx.x * width + i] = sum[i];
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    for (int y = 1; y < kGroupThreads; ++y) sum[i] += shared[y][threadIdx.x * width + i];
    partial[blockIdx.y * columns + column + i] = sum[i];
  }
}

__global__ void __launch_bounds__(kWarp* kPartThreads)
    partial_sums_kernel(float* sums, const float* partial, std::int64_t groups, std::int64_t columns) {
  __shared__ float shared[kPartThreads][kWarp];
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t group = threadIdx.y; group < groups; group += kPartThreads) {
      sum += partial[group * columns + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int y = 1; y < kPartThreads; ++y) sum += shared[y][threadIdx.x];
  sums[column] += sum;
}

}  // namespace

void add_partial_sums(const CudaTarget& target, const char* operation, float* sums, const float* partial,
                      std::int64_t groups, std::int64_t columns) {
  if (columns == 0) return;
  launch(target, operation, partial_sums_kernel, grid_size(operation, pieces(columns, kWarp)),
         dim3(kWarp, kPartThreads), 0, sums, partial, groups, columns);
}

void add_column_sums(const CudaTarget& target, const char* operation, Sums sums, ConstMatrix x) {
  if (x.size() == 0) return;
  const std::int64_t rows_of_group = std::max<std::int64_t>(32, pieces(x.rows, kGroups));
  const std::int64_t groups = pieces(x.rows, rows_of_group);
  const StreamBuffer partial(target, operation, groups * x.columns);
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const bool vectors = fit_vectors<T>(x.columns, x.data);
    const auto kernel = vectors ? group_sums_kernel<kVector<T>, T> : group_sums_kernel<1, T>;
    const std::int64_t width = vectors ? kVector<T> : 1;
    const dim3 grid(grid_size(operation, pieces(x.columns, kWarp * width)), static_cast<unsigned>(groups));
    launch(target, operation, kernel, grid, dim3(kWarp, kGroupThreads), 0, partial.data(), values_of<T>(x),
           x.rows, x.columns, rows_of_group);
  });
  add_partial_sums(target, operation, values_of(sums), partial.data(), groups, x.columns);
}

}  // namespace dflop::cuda
