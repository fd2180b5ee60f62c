// FlashAttention-2 (Dao 2023, algorithm 2) in two passes, so that no two blocks add to one gradient and a run
// repeats to the bit. With p the probabilities, computed again from the statistics, and ds = p * (dout v^T -
// delta), where delta = sum of dout * out:
//   queries: a block has some queries of a head and goes over keys; dq = scale * ds k.
//   keys: a block has some keys of a key head and goes over the queries of its heads; dv = p^T dout,
//   dk = scale * ds^T q. It computes p^T and ds^T at once, as what it adds up belongs to keys.
// That is seven products where five would do with atomic additions.
#include "kernels/cuda/attention_backward.hpp"

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

/// delta[row, head] = sum of dout * out over the head; a warp each.
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

}  // namespace

void tensor_attention_backward(const CudaTarget& target, const AttentionLayout& layout, Matrix dqkv,
                               ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv) {
  constexpr const char* kOperation = "attention_backward";
  const std::int64_t count = layout.rows * layout.heads;
  const StreamBuffer delta(target, kOperation, count);
  constexpr int kDeltaThreads = 256;
  launch(target, kOperation, delta_kernel, grid_size(kOperation, pieces(count, kDeltaThreads / kWarp)),
         kDeltaThreads, 0, delta.data(), values_of<bf16>(dout), values_of<bf16>(out), count, layout.head_dim);
  const AttentionGradients gradients{values_of<bf16>(dqkv), values_of<bf16>(dout), values_of(statistics),
                                     delta.data(), values_of<bf16>(qkv)};
  query_gradients(target, layout, gradients);
  key_gradients(target, layout, gradients);
}

}  // namespace dflop::cuda
