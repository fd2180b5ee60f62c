#include "kernels/cuda/attention.hpp"

#include "kernels/cuda/operations.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

template <typename... Pointers>
bool takes_tensor_cores(const CudaTarget& target, const AttentionShape& shape, Pointers... pointers) {
  return target.dtype == DType::bf16 && shape.head_dim <= 128 &&
         fit_vectors<bf16>(shape.head_dim, pointers...);
}

}  // namespace

void attention(const CudaTarget& target, Matrix out, Sums statistics, ConstMatrix qkv,
               const AttentionShape& shape, Indices offsets) {
  if (qkv.rows == 0) return;
  const AttentionLayout layout(shape, offsets, qkv.rows);
  if (takes_tensor_cores(target, shape, out.data, qkv.data)) {
    tensor_attention(target, layout, out, statistics, qkv);
  } else {
    plain_attention(target, layout, out, statistics, qkv);
  }
}

void attention_backward(const CudaTarget& target, Matrix dqkv, ConstMatrix dout, ConstMatrix out,
                        ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape, Indices offsets) {
  if (qkv.rows == 0) return;
  const AttentionLayout layout(shape, offsets, qkv.rows);
  if (takes_tensor_cores(target, shape, dqkv.data, dout.data, out.data, qkv.data)) {
    tensor_attention_backward(target, layout, dqkv, dout, out, statistics, qkv);
  } else {
    plain_attention_backward(target, layout, dqkv, dout, out, statistics, qkv);
  }
}

}  // namespace dflop::cuda
