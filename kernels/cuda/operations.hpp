// The operations of kernels.hpp on a GPU, of matrices in f32 or bf16 with sums in f32. Arguments have been
// checked (operation_checks.hpp). Each puts its work into the target's stream and returns.
//
// No sum is taken by atomic additions: the same call gives the same bytes every time.
//
// Each throws Error(internal) with the operation and CUDA's reason where a kernel cannot be started.
#pragma once

#include "kernels/cuda/launch.hpp"
#include "kernels/kernels.hpp"

namespace dflop::cuda {

// cuda_product.cu
/// How one operand or the result of a product lies in memory: value (i, j) is at i * row + j * column.
struct Strides {
  std::int64_t row = 0;
  std::int64_t column = 0;
};
/// result[m, n] = left[m, k] * right[k, n] + bias[n], or added to what is there and without bias. On plain
/// cores: for shapes that the library's products do not take. The result is of the target's type, or f32.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const void* left = nullptr;
  Strides left_strides;
  const void* right = nullptr;
  Strides right_strides;
  void* result = nullptr;      ///< row after row
  const void* bias = nullptr;  ///< may be none
  bool add_to_sums = false;    ///< the result is f32 and is added to
};
void plain_product(const CudaTarget& target, const char* operation, const Product& product);

// cuda_columns.cu
/// sums[1, columns] += column sums of x. Two stages: at most 256 groups of rows, then the groups.
void add_column_sums(const CudaTarget& target, const char* operation, Sums sums, ConstMatrix x);
/// The second stage: sums[column] += partial[0, groups) of the column, which lie `columns` apart.
void add_partial_sums(const CudaTarget& target, const char* operation, float* sums, const float* partial,
                      std::int64_t groups, std::int64_t columns);

// cuda_norm.cu
void layer_norm(const CudaTarget& target, Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma,
                ConstMatrix beta, double epsilon);
void rms_norm(const CudaTarget& target, Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma,
              double epsilon);
// cuda_norm_backward.cu
void layer_norm_backward(const CudaTarget& target, Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy,
                         ConstMatrix x, ConstMatrix gamma, ConstSums statistics);
void rms_norm_backward(const CudaTarget& target, Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x,
                       ConstMatrix gamma, ConstSums statistics);

// cuda_activation.cu
void gelu(const CudaTarget& target, Matrix y, ConstMatrix x);
void gelu_backward(const CudaTarget& target, Matrix dx, ConstMatrix dy, ConstMatrix x);
void swiglu(const CudaTarget& target, Matrix y, ConstMatrix x);
void swiglu_backward(const CudaTarget& target, Matrix dx, ConstMatrix dy, ConstMatrix x);

// cuda_rope.cu
void rope(const CudaTarget& target, Matrix qkv, const AttentionShape& shape, Indices positions, double base,
          bool inverse);

// cuda_attention.cu chooses between the two below it.
void attention(const CudaTarget& target, Matrix out, Sums statistics, ConstMatrix qkv,
               const AttentionShape& shape, Indices offsets);
void attention_backward(const CudaTarget& target, Matrix dqkv, ConstMatrix dout, ConstMatrix out,
                        ConstSums statistics, ConstMatrix qkv, const AttentionShape& shape, Indices offsets);

// cuda_embedding.cu
void embedding(const CudaTarget& target, Matrix y, ConstMatrix table, Indices ids, std::int64_t first);
/// A block per token looks for the others of its id: tokens^2 comparisons, 1e9 for 32,768 tokens.
void embedding_backward(const CudaTarget& target, Sums dtable, ConstMatrix dy, Indices ids,
                        std::int64_t first);
void gather_rows(const CudaTarget& target, Matrix y, ConstMatrix x, Indices index);
/// As embedding_backward, unless the index rises all the way.
void scatter_add_rows(const CudaTarget& target, Matrix y, ConstMatrix x, Indices index);

// cuda_cross_entropy.cu
void cross_entropy_parts(const CudaTarget& target, Sums parts, ConstMatrix logits, Indices targets,
                         std::int64_t first);
void cross_entropy_merge(const CudaTarget& target, Sums merged, ConstSums parts, int ranks);
void cross_entropy_backward(const CudaTarget& target, Matrix logits, Sums loss, ConstSums merged,
                            Indices targets, std::int64_t first, double weight);

// cuda_rows.cu
void pool_rows(const CudaTarget& target, Matrix y, ConstMatrix x, Indices begin, Indices end);
/// A thread looks for the windows of its row: by bisection where neither begins nor ends ever fall, else
/// among all.
void pool_rows_backward(const CudaTarget& target, Matrix dx, ConstMatrix dy, Indices begin, Indices end);
void add(const CudaTarget& target, Matrix y, ConstMatrix x);
void round(const CudaTarget& target, Matrix y, ConstSums x);
void scale(const CudaTarget& target, Sums y, double factor);

// cuda_optimizer.cu
void adamw(const CudaTarget& target, Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient,
           const AdamWStep& step);

}  // namespace dflop::cuda
