// This file has rope and chooses the attention kernel: a library's, one on tensor cores, or the plain one.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

/// Rope rotates `width` adjacent pairs of one head in one row; `first` is the index of the first pair among
/// all pairs of all rows.
template <typename T>
struct Rope {
  T* qkv;
  const std::int32_t* rows;
  const float* turns;    ///< [*, 2 half]: cosines, then sines
  std::int64_t columns;  ///< of qkv
  int heads;             ///< query heads and key heads
  int half;              ///< pairs of a head
  float sign;            ///< -1 for the inverse rotation

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

// The backward on tensor cores is FlashAttention-2 (Dao 2023, algorithm 2), split into two passes. Each
// gradient value has one block that sums it, in a fixed order, so that runs repeat bit for bit without atomic
// additions. Let p be the probabilities, recomputed from the statistics, and ds = p * (dout v^T - delta),
// where delta = sum of dout * out:
//   queries: a block holds some queries of a head and loops over keys; dq = scale * ds k.
//   keys: a block holds some keys of a key head and loops over the queries of its heads; dv = p^T dout, dk =
//   scale * ds^T q. It computes p^T and ds^T directly, because its sums belong to keys.
// This takes seven matrix products; one pass with atomic additions would take five.

/// Sets delta[row, head] = sum of dout * out over the head. One warp computes each value.
__global__ void delta_kernel(float* delta, const bf16* dout, const bf16* out, std::int64_t count,
                             int head_dim) {
  const std::int64_t head = std::int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (head >= count) return;  // the same for all lanes of a warp
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
                               AttentionWay tiles) {
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

void own_attention(const CudaTarget& target, Matrix out, Sums statistics, ConstMatrix qkv,
                   const AttentionShape& shape, Indices offsets, AttentionWay tiles) {
  if (qkv.rows == 0) return;
  const AttentionLayout layout(shape, offsets, qkv.rows);
  if (takes_tensor_cores(target, shape, out.data, qkv.data)) {
    tensor_attention(target, layout, out, statistics, qkv, tiles);
  } else {
    plain_attention(target, layout, out, statistics, qkv);
  }
}

void own_attention_backward(const CudaTarget& target, Matrix dqkv, ConstMatrix dout, ConstMatrix out,
                            ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape,
                            Indices offsets, AttentionWay tiles) {
  if (qkv.rows == 0) return;
  const AttentionLayout layout(shape, offsets, qkv.rows);
  if (takes_tensor_cores(target, shape, dqkv.data, dout.data, out.data, qkv.data)) {
    tensor_attention_backward(target, layout, dqkv, dout, out, statistics, qkv, tiles);
  } else {
    plain_attention_backward(target, layout, dqkv, dout, out, statistics, qkv);
  }
}

/// AttentionState is shared by all attention variants.
struct AttentionState {
  const CudaTarget& target;
  std::unique_ptr<AttentionLibrary> packaged;  ///< a library's attention, or null
};

/// Computes attention with the implementation that attention_way() chooses, or with the project's own kernels
/// if the library does not support the call.
void attention_by_rule(AttentionState& state, Matrix out, Sums statistics, ConstMatrix qkv,
                       const AttentionShape& shape, Indices offsets) {
  const std::int64_t longest = longest_sequence(offsets.host);
  const bool library = attention_way(longest, state.packaged != nullptr) == AttentionWay::library;
  if (library && state.packaged->forward(out, statistics, qkv, shape, offsets)) return;
  own_attention(state.target, out, statistics, qkv, shape, offsets, attention_way(longest, false));
}

void attention_backward_by_rule(AttentionState& state, Matrix dqkv, ConstMatrix dout, ConstMatrix out,
                                ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape,
                                Indices offsets) {
  const std::int64_t longest = longest_sequence(offsets.host);
  const bool library = attention_way(longest, state.packaged != nullptr) == AttentionWay::library;
  if (library && state.packaged->backward(dqkv, dout, out, statistics, qkv, shape, offsets)) return;
  own_attention_backward(state.target, dqkv, dout, out, statistics, qkv, shape, offsets,
                         attention_way(longest, false));
}

template <AttentionWay way>
void attention(AttentionState& state, Matrix out, Sums statistics, ConstMatrix qkv,
               const AttentionShape& shape, Indices offsets) {
  if constexpr (way != AttentionWay::library) {
    own_attention(state.target, out, statistics, qkv, shape, offsets, way);
  } else if (!state.packaged->forward(out, statistics, qkv, shape, offsets)) {
    attention_by_rule(state, out, statistics, qkv, shape, offsets);
  }
}

template <AttentionWay way>
void attention_backward(AttentionState& state, Matrix dqkv, ConstMatrix dout, ConstMatrix out,
                        ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape, Indices offsets) {
  if constexpr (way != AttentionWay::library) {
    own_attention_backward(state.target, dqkv, dout, out, statistics, qkv, shape, offsets, way);
  } else if (!state.packaged->backward(dqkv, dout, out, statistics, qkv, shape, offsets)) {
    attention_backward_by_rule(state, dqkv, dout, out, statistics, qkv, shape, offsets);
  }
}

template <AttentionWay way>
void add_way(Kernels& kernels, std::string_view name, AttentionState& state) {
  kernels.attention.add<attention<way>>(name, state);
  kernels.attention_backward.add<attention_backward<way>>(name, state);
}

}  // namespace

std::shared_ptr<void> set_attention(Kernels& kernels, const CudaTarget& target,
                                    std::unique_ptr<AttentionLibrary> library) {
  const std::shared_ptr<AttentionState> state(new AttentionState{target, std::move(library)});
  kernels.rope.set<rope>(target);
  kernels.attention.set<attention_by_rule>(*state);
  kernels.attention_backward.set<attention_backward_by_rule>(*state);
  if (target.dtype != DType::bf16) return state;  // f32 has no tensor-core tiles
  add_way<AttentionWay::tiles_128>(kernels, "tiles-128", *state);
  add_way<AttentionWay::tiles_64>(kernels, "tiles-64", *state);
  if (state->packaged) add_way<AttentionWay::library>(kernels, state->packaged->name(), *state);
  return state;
}

}  // namespace dflop::cuda
