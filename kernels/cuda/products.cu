// This file has a matrix product without tensor cores, and column sums in two stages. All sums are added in a
// fixed order.
#include <algorithm>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

constexpr int kTile = 16;

/// Computes a matrix product. A block computes a tile of the result, and a thread one value of the tile.
/// Tiles of both factors go through shared memory, so that each value read from global memory serves kTile
/// products.
template <typename T>
__global__ void __launch_bounds__(kTile* kTile) product_kernel(Product product) {
  __shared__ float left[kTile][kTile + 1];
  __shared__ float right[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);
  const std::int64_t tiles = (product.n + kTile - 1) / kTile;
  const std::int64_t i = blockIdx.x / tiles * kTile + y;
  const std::int64_t j = blockIdx.x % tiles * kTile + x;
  const T* a = static_cast<const T*>(product.left);
  const T* b = static_cast<const T*>(product.right);
  float sum = 0.0f;
  for (std::int64_t k = 0; k < product.k; k += kTile) {
    const bool a_inside = i < product.m && k + x < product.k;
    const bool b_inside = j < product.n && k + y < product.k;
    left[y][x] =
        a_inside ? to_float(a[i * product.left_strides.row + (k + x) * product.left_strides.column]) : 0.0f;
    right[y][x] =
        b_inside ? to_float(b[(k + y) * product.right_strides.row + j * product.right_strides.column]) : 0.0f;
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kTile; ++t) sum += left[y][t] * right[t][x];
    __syncthreads();
  }
  if (i >= product.m || j >= product.n) return;
  const std::int64_t place = i * product.n + j;
  if (product.to_sums) {
    float& result = static_cast<float*>(product.result)[place];
    result = product.beta == Beta::one ? result + sum : sum;
    return;
  }
  if (product.bias != nullptr) sum += to_float(static_cast<const T*>(product.bias)[j]);
  static_cast<T*>(product.result)[place] = from_float<T>(sum);
}

constexpr int kGroupThreads = 8;  ///< threads that share the rows of a group
constexpr int kPartThreads = 16;  ///< threads that share the partial sums of a column
constexpr std::int64_t kGroups = 256;

/// Runs the first stage of column sums: a block sums kWarp * width columns over one group of `rows_of_group`
/// rows. The lanes of a warp read adjacent columns, so that their loads coalesce.
template <int width, typename T>
__global__ void __launch_bounds__(kWarp* kGroupThreads)
    group_sums_kernel(float* partial, const T* x, const T* factors, std::int64_t rows, std::int64_t columns,
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
      if (factors != nullptr) {  // the same for all threads
        float others[width];
        load(others, factors + row * columns + column);
#pragma unroll
        for (int i = 0; i < width; ++i) values[i] *= others[i];
      }
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

/// Second stage: adds the partial sums of all groups to `sums`, in a fixed order.
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

void plain_product(const CudaTarget& target, const char* operation, const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  const std::int64_t tiles = pieces(product.m, kTile) * pieces(product.n, kTile);
  with_type(target, [&](auto type) {
    using T = decltype(type);
    launch(target, operation, product_kernel<T>, grid_size(operation, tiles), dim3(kTile, kTile), 0, product);
  });
}

void add_partial_sums(const CudaTarget& target, const char* operation, float* sums, const float* partial,
                      std::int64_t groups, std::int64_t columns) {
  if (columns == 0) return;
  launch(target, operation, partial_sums_kernel, grid_size(operation, pieces(columns, kWarp)),
         dim3(kWarp, kPartThreads), 0, sums, partial, groups, columns);
}

void add_column_sums(const CudaTarget& target, const char* operation, Sums sums, ConstMatrix x,
                     const ConstMatrix* factors) {
  if (x.size() == 0) return;
  const std::int64_t rows_of_group = std::max<std::int64_t>(32, pieces(x.rows, kGroups));
  const std::int64_t groups = pieces(x.rows, rows_of_group);
  const StreamBuffer partial(target, operation, groups * x.columns);
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const T* others = factors != nullptr ? values_of<T>(*factors) : nullptr;
    const bool vectors = fit_vectors<T>(x.columns, x.data, others);
    const auto kernel = vectors ? group_sums_kernel<kVector<T>, T> : group_sums_kernel<1, T>;
    const std::int64_t width = vectors ? kVector<T> : 1;
    const dim3 grid(grid_size(operation, pieces(x.columns, kWarp * width)), static_cast<unsigned>(groups));
    launch(target, operation, kernel, grid, dim3(kWarp, kGroupThreads), 0, partial.data(), values_of<T>(x),
           others, x.rows, x.columns, rows_of_group);
  });
  add_partial_sums(target, operation, values_of(sums), partial.data(), groups, x.columns);
}

}  // namespace dflop::cuda
