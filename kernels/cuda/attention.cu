// This file has rope, and chooses between attention on tensor cores and on plain ones.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

/// Rope turns `width` pairs of one head in one row; value `first` is the first of them among all pairs.
template <typename T>
struct Rope {
  T* qkv;
  const std::int32_t* rows;
  const float* turns;    ///< [*, 2 half]: cosines, then sines
  std::int64_t columns;  ///< of qkv
  int heads;             ///< queries' and keys'
  int half;              ///< pairs of a head
  float sign;            ///< -1 turns back

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    const std::int64_t of_row = std::int64_t{heads} * half;
    const std::int64_t row = first / of_row;
    const auto head = first % of_row / half;
    const auto pair = first % half;
    T* pairs = qkv + row * columns + head * 2 * half + pair;
    const float* angle = turns + std::int64_t{rows[row]} * 2 * half + pair;
    float x[width];
    float y[width];
    float cosine[width];
    float sine[width];
    load(x, pairs);
    load(y, pairs + half);
    load(cosine, angle);
    load(sine, angle + half);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const float turned = x[k] * cosine[k] - y[k] * (sign * sine[k]);
      y[k] = y[k] * cosine[k] + x[k] * (sign * sine[k]);
      x[k] = turned;
    }
    store(pairs, x);
    store(pairs + half, y);
  }
};

void rope(const CudaTarget& target, Matrix qkv, const AttentionShape& shape, Indices rows, ConstSums turns,
          bool inverse) {
  const int half = shape.head_dim / 2;
  const int heads = shape.heads + shape.kv_heads;
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const Rope<T> f{values_of<T>(qkv),     rows.device, values_of(turns), qkv.columns, heads, half,
                    inverse ? -1.0f : 1.0f};
    const bool aligned = fit_vectors<T>(half, qkv.data) && fit_vectors<float>(half, turns.data);
    each_value<kVector<T>>(target, "rope", qkv.rows * heads * half, aligned, f);
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
