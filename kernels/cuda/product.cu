#include "kernels/cuda/operations.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

constexpr int kTile = 16;

/// A block has a tile of the result, a thread one value of it.
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
  if (product.add_to_sums) {
    static_cast<float*>(product.result)[place] += sum;
    return;
  }
  if (product.bias != nullptr) sum += to_float(static_cast<const T*>(product.bias)[j]);
  static_cast<T*>(product.result)[place] = from_float<T>(sum);
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

}  // namespace dflop::cuda
