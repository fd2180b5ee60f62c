// Attention has two CUDA implementations, one on plain cores and one on tensor cores. This header declares
// both, and AttentionLayout, the layout of the packed projection that both read.
#pragma once

#include <cuda_bf16.h>

#include <cmath>

#include "kernels/cuda/attention_rule.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/sequence_tiles.hpp"

namespace dflop::cuda {

constexpr float kLog2E = 1.4426950408889634f;  ///< log2(e): exponentials are computed as powers of two

struct AttentionLayout {
  int heads;
  int kv_heads;
  int head_dim;
  bool causal;
  float scale;  ///< factor of each query-key product
  int sequences;
  std::int64_t rows;
  const std::int32_t* offsets;

  AttentionLayout(const AttentionShape& shape, Indices list, std::int64_t all_rows)
      : heads(shape.heads),
        kv_heads(shape.kv_heads),
        head_dim(shape.head_dim),
        causal(shape.causal),
        scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)))),
        sequences(static_cast<int>(list.host.size()) - 1),
        rows(all_rows),
        offsets(list.device) {}

  /// query(), key() and value() return the first column of a head in a row of the packed projection.
  DFLOP_HOST_DEVICE std::int64_t query(int head) const { return std::int64_t{head} * head_dim; }
  DFLOP_HOST_DEVICE std::int64_t key(int kv_head) const { return query(heads + kv_head); }
  DFLOP_HOST_DEVICE std::int64_t value(int kv_head) const { return query(heads + kv_heads + kv_head); }
  DFLOP_HOST_DEVICE int qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  DFLOP_HOST_DEVICE int out_columns() const { return heads * head_dim; }
  DFLOP_HOST_DEVICE int kv_head_of(int head) const { return head / (heads / kv_heads); }
};

// kernels/cuda/attention_plain.cu defines plain_...(), for any precision and head width, with one warp per
// row.

void plain_attention(const CudaTarget& target, const AttentionLayout& layout, Matrix out, Sums statistics,
                     ConstMatrix qkv);
void plain_attention_backward(const CudaTarget& target, const AttentionLayout& layout, Matrix dqkv,
                              ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv);

// attention_forward.cu, attention_queries.cu and attention_keys.cu define the following functions. They use
// tensor cores in bf16. They need a head width that is a multiple of 8 up to 128, and matrices aligned to 16
// bytes.

void tensor_attention(const CudaTarget& target, const AttentionLayout& layout, Matrix out, Sums statistics,
                      ConstMatrix qkv, AttentionWay tiles);

/// AttentionGradients refer to the inputs of the two gradient passes and to dqkv, which the passes write.
struct AttentionGradients {
  __nv_bfloat16* dqkv;
  const __nv_bfloat16* dout;
  const float* log_sums;  ///< the statistics
  const float* delta;     ///< [rows, heads]: sum of dout * out over the head
  const __nv_bfloat16* qkv;
};
/// Sets the gradient of the queries, dq = scale * ds k (see kernels/cuda/attention.cu).
void query_gradients(const CudaTarget& target, const AttentionLayout& layout,
                     const AttentionGradients& gradients, AttentionWay tiles);
/// Sets the gradients of keys and values, dk = scale * ds^T q and dv = p^T dout (see
/// kernels/cuda/attention.cu).
void key_gradients(const CudaTarget& target, const AttentionLayout& layout,
                   const AttentionGradients& gradients, AttentionWay tiles);

}  // namespace dflop::cuda
