// The two passes of the gradient of attention on tensor cores.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/attention.hpp"

namespace dflop::cuda {

/// What the passes read, and dqkv, which they write.
struct AttentionGradients {
  __nv_bfloat16* dqkv;
  const __nv_bfloat16* dout;
  const float* log_sums;  ///< the statistics
  const float* delta;     ///< [rows, heads]: sum of dout * out over the head
  const __nv_bfloat16* qkv;
};

// cuda_attention_queries.cu: dq = scale * ds k.
void query_gradients(const CudaTarget& target, const AttentionLayout& layout,
                     const AttentionGradients& gradients);
// cuda_attention_keys.cu: dk = scale * ds^T q and dv = p^T dout.
void key_gradients(const CudaTarget& target, const AttentionLayout& layout,
                   const AttentionGradients& gradients);

}  // namespace dflop::cuda
