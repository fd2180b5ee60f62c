// This file has rope, and chooses between attention on tensor cores and on plain ones.
#include <cmath>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

// For rope a block turns a few rows. First it computes the angles of their positions, which all heads share,
// then it turns the pairs.

constexpr int kRopeThreads = 256;
constexpr int kRopeRows = 4;

/// Turns are what all rows share.
struct Turns {
  std::int64_t rows;
  std::int64_t columns;
  int heads;  ///< queries' and keys'
  int half;   ///< pairs of a head
  double log2_base;
  bool inverse;
};

/// Sets the angles of the block's rows, in double: far positions have large ones.
__device__ void set_angles(float2* angles, const std::int32_t* positions, std::int64_t first,
                           const Turns& turns) {
  for (int i = static_cast<int>(threadIdx.x); i < kRopeRows * turns.half; i += kRopeThreads) {
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
__global__ void __launch_bounds__(kRopeThreads)
    rope_kernel(T* qkv, const std::int32_t* positions, Turns turns) {
  extern __shared__ float2 angles[];  // [kRopeRows, half]
  const std::int64_t first = std::int64_t{blockIdx.x} * kRopeRows;
  set_angles(angles, positions, first, turns);
  __syncthreads();
  const int steps = turns.half / width;  // of a head
  const int steps_of_row = turns.heads * steps;
  for (int i = static_cast<int>(threadIdx.x); i < kRopeRows * steps_of_row; i += kRopeThreads) {
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

void rope(const CudaTarget& target, Matrix qkv, const AttentionShape& shape, Indices positions, double base,
          bool inverse) {
  if (qkv.rows == 0) return;
  const int half = shape.head_dim / 2;
  const Turns turns{qkv.rows, qkv.columns, shape.heads + shape.kv_heads, half, std::log2(base), inverse};
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const auto kernel = fit_vectors<T>(half, qkv.data) ? rope_kernel<kVector<T>, T> : rope_kernel<1, T>;
    const auto shared = static_cast<std::size_t>(kRopeRows * half) * sizeof(float2);
    launch(target, "rope", kernel, grid_size("rope", pieces(qkv.rows, kRopeRows)), kRopeThreads, shared,
           values_of<T>(qkv), positions.device, turns);
  });
}

// The backward on tensor cores is FlashAttention-2 (Dao 2023, algorithm 2) in two passes, so that no two
// blocks add to one gradient and a run repeats to the bit. With p the probabilities, computed again from the
// statistics, and ds = p * (dout v^T - delta), where delta = sum of dout * out:
//   queries: a block has some queries of a head and goes over keys; dq = scale * ds k.
//   keys: a block has some keys of a key head and goes over the queries of its heads; dv = p^T dout,
//   dk = scale * ds^T q. It computes p^T and ds^T at once, as what it adds up belongs to keys.
// That is seven products where five would do with atomic additions.

/// Sets delta[row, head] = sum of dout * out over the head; a warp each.
__global__ void delta_kernel(float* delta, const bf16* dout, const bf16* out, std::int64_t count,
                             int head_dim) {
  const std::int64_t head = std::int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (head >= count) return;  // a warp at a time
  float sum = 0.0f;
  for (int i = static_cast<int>(threadIdx.x) % kWarp * 2; i < head_dim; i += 2 * kWarp) {
    float a[2];
    float b[2];
    load(a, dout + head * head_dim + i);
    load(b, out + head * head_dim + i);
    sum += a[0] * b[0] + a[1] * b[1];
  }
  sum = reduce_warp(sum, Add());
  if (threadIdx.x % kWarp == 0) delta[head] = sum;
}

void tensor_attention_backward(const CudaTarget& target, const AttentionLayout& layout, Matrix dqkv,
                               ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                               AttentionTiles tiles) {
  constexpr const char* kOperation = "attention_backward";
  const std::int64_t count = layout.rows * layout.heads;
  const StreamBuffer delta(target, kOperation, count);
  constexpr int kDeltaThreads = 256;
  launch(target, kOperation, delta_kernel, grid_size(kOperation, pieces(count, kDeltaThreads / kWarp)),
         kDeltaThreads, 0, delta.data(), values_of<bf16>(dout), values_of<bf16>(out), count, layout.head_dim);
  const AttentionGradients gradients{values_of<bf16>(dqkv), values_of<bf16>(dout), values_of(statistics),
                                     delta.data(), values_of<bf16>(qkv)};
  query_gradients(target, layout, gradients, tiles);
  key_gradients(target, layout, gradients, tiles);
}

template <typename... Pointers>
bool takes_tensor_cores(const CudaTarget& target, const AttentionShape& shape, Pointers... pointers) {
  return target.dtype == DType::bf16 && shape.head_dim <= 128 &&
         fit_vectors<bf16>(shape.head_dim, pointers...);
}

template <AttentionTiles tiles>
void attention(const CudaTarget& target, Matrix out, Sums statistics, ConstMatrix qkv,
               const AttentionShape& shape, Indices offsets) {
  if (qkv.rows == 0) return;
  const AttentionLayout layout(shape, offsets, qkv.rows);
  if (takes_tensor_cores(target, shape, out.data, qkv.data)) {
    tensor_attention(target, layout, out, statistics, qkv, tiles);
  } else {
    plain_attention(target, layout, out, statistics, qkv);
  }
}

template <AttentionTiles tiles>
void attention_backward(const CudaTarget& target, Matrix dqkv, ConstMatrix dout, ConstMatrix out,
                        ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape, Indices offsets) {
  if (qkv.rows == 0) return;
  const AttentionLayout layout(shape, offsets, qkv.rows);
  if (takes_tensor_cores(target, shape, dqkv.data, dout.data, out.data, qkv.data)) {
    tensor_attention_backward(target, layout, dqkv, dout, out, statistics, qkv, tiles);
  } else {
    plain_attention_backward(target, layout, dqkv, dout, out, statistics, qkv);
  }
}

}  // namespace

void set_attention(Kernels& kernels, const CudaTarget& target) {
  kernels.rope.set<rope>(target);
  kernels.attention.set<attention<AttentionTiles::large>>(target);
  kernels.attention_backward.set<attention_backward<AttentionTiles::large>>(target);
  if (target.dtype != DType::bf16) return;  // there are no tiles
  kernels.attention.add<attention<AttentionTiles::small>>("tiles-64", target);
  kernels.attention_backward.add<attention_backward<AttentionTiles::small>>("tiles-64", target);
}

}  // namespace dflop::cuda
