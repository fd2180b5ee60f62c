// These are the operations of kernels/kernels.hpp on a GPU, of matrices in f32 or bf16 with sums in f32. A
// function of an operation gets checked arguments, puts its work into the target's stream and returns.
//
// No sum is taken by atomic additions: the same call gives the same bytes every time.
//
// Each throws Error(internal) with the operation and CUDA's reason where a kernel cannot be started.
#pragma once

#include <memory>

#include "kernels/cuda/attention_library.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/kernels.hpp"

namespace dflop::cuda {

// Each sets the functions of one theme, in the file of its name. The target must outlive the kernels.
void set_norms(Kernels& kernels, const CudaTarget& target);
void set_activations(Kernels& kernels, const CudaTarget& target);
void set_rows(Kernels& kernels, const CudaTarget& target);
void set_loss(Kernels& kernels, const CudaTarget& target);
void set_elementwise(Kernels& kernels, const CudaTarget& target);
void set_unpack(Kernels& kernels, const CudaTarget& target);

/// Sets the functions of attention: by default attention_way() chooses, and each way is a variant. The result
/// is what they keep, and must outlive the kernels. `library` may be none.
std::shared_ptr<void> set_attention(Kernels& kernels, const CudaTarget& target,
                                    std::unique_ptr<AttentionLibrary> library);

/// Sets the functions of linear layers. The result is what they keep, and must outlive the kernels, too: the
/// library with a workspace from the target's pool. `multiprocessors` is as in CudaKernelOptions.
/// @throws Error (no_device) without cuBLASLt, Error (internal) where there is no memory.
std::shared_ptr<void> set_linear(Kernels& kernels, const CudaTarget& target, int multiprocessors);

// Several themes use what kernels/cuda/products.cu has.

/// Strides are where one operand or the result of a product lies in memory: value (i, j) is at i * row + j *
/// column.
struct Strides {
  std::int64_t row = 0;
  std::int64_t column = 0;
};
/// A Product is result[m, n] = left[m, k] * right[k, n] + bias[n], or added to what is there and without
/// bias. It runs on plain cores: for shapes that the library's products do not take. The result is of the
/// target's type, or f32.
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
  bool to_sums = false;        ///< the result is f32, and beta times what it was is added
  Beta beta = Beta::zero;
};
void plain_product(const CudaTarget& target, const char* operation, const Product& product);

/// Adds column sums of x, times `factors` where there are some, to sums[1, columns]. Two stages: at most 256
/// groups of rows, then the groups.
void add_column_sums(const CudaTarget& target, const char* operation, Sums sums, ConstMatrix x,
                     const ConstMatrix* factors = nullptr);
/// Takes the second stage: sums[column] += partial[0, groups) of the column, which lie `columns` apart.
void add_partial_sums(const CudaTarget& target, const char* operation, float* sums, const float* partial,
                      std::int64_t groups, std::int64_t columns);

}  // namespace dflop::cuda
