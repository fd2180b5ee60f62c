// A block turns a few rows: first it computes the angles of their positions, which all heads share, then it
// turns the pairs.
#include <cmath>

#include "kernels/cuda/operations.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 4;

/// What all rows share.
struct Turns {
  std::int64_t rows;
  std::int64_t columns;
  int heads;  ///< queries' and keys'
  int half;   ///< pairs of a head
  double log2_base;
  bool inverse;
};

/// Angles in double: far positions have large ones.
__device__ void set_angles(float2* angles, const std::int32_t* positions, std::int64_t first,
                           const Turns& turns) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * turns.half; i += kThreads) {
    const std::int64_t row = first + i / turns.half;
    if (row >= turns.rows) continue;
    const int pair = i % turns.half;
    const double frequency = exp2(-static_cast<double>(pair) / turns.half * turns.log2_base);
    double sine = 0.0;
    double cosine = 0.0;
    sincos(positions[row] * frequency, &sine, &cosine);
    angles[i] = make_float2(static_cast<float>(cosine), static_cast<float>(turns.inverse ? -sine : sine));
  }
}

template <int width, typename T>
__global__ void __launch_bounds__(kThreads) rope_kernel(T* qkv, const std::int32_t* positions, Turns turns) {
  extern __shared__ float2 angles[];  // [kRows, half]
  const std::int64_t first = std::int64_t{blockIdx.x} * kRows;
  set_angles(angles, positions, first, turns);
  __syncthreads();
  const int steps = turns.half / width;  // of a head
  const int steps_of_row = turns.heads * steps;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * steps_of_row; i += kThreads) {
    const int row = i / steps_of_row;
    if (first + row >= turns.rows) break;
    const int head = i % steps_of_row / steps;
    const int pair = i % steps * width;
    T* pairs = qkv + (first + row) * turns.columns + std::int64_t{head} * 2 * turns.half + pair;
    float x[width];
    float y[width];
    load(x, pairs);
    load(y, pairs + turns.half);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const float2 angle = angles[row * turns.half + pair + k];
      const float turned = x[k] * angle.x - y[k] * angle.y;
      y[k] = y[k] * angle.x + x[k] * angle.y;
      x[k] = turned;
    }
    store(pairs, x);
    store(pairs + turns.half, y);
  }
}

}  // namespace

void rope(const CudaTarget& target, Matrix qkv, const AttentionShape& shape, Indices positions, double base,
          bool inverse) {
  if (qkv.rows == 0) return;
  const int half = shape.head_dim / 2;
  const Turns turns{qkv.rows, qkv.columns, shape.heads + shape.kv_heads, half, std::log2(base), inverse};
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const auto kernel = fit_vectors<T>(half, qkv.data) ? rope_kernel<kVector<T>, T> : rope_kernel<1, T>;
    const auto shared = static_cast<std::size_t>(kRows * half) * sizeof(float2);
    launch(target, "rope", kernel, grid_size("rope", pieces(qkv.rows, kRows)), kThreads, shared,
           values_of<T>(qkv), positions.device, turns);
  });
}

}  // namespace dflop::cuda
