// The set_...() functions here set the operations of kernels/kernels.hpp on a GPU, for matrices in f32 or
// bf16 with sums in f32. The function of an operation gets checked arguments, enqueues its work in the
// target's stream and returns.
//
// No sum uses atomic additions, so the same call gives the same bytes every time.
//
// Operations throw Error(internal) with the operation's name and CUDA's reason if a kernel cannot be started.
#pragma once

#include <memory>

#include "kernels/cuda/attention_library.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/kernels.hpp"

namespace dflop::cuda {

// Each function sets the operations of one theme and is in the file with the theme's name. The target must
// outlive the kernels.
void set_norms(Kernels& kernels, const CudaTarget& target);
void set_activations(Kernels& kernels, const CudaTarget& target);
void set_rows(Kernels& kernels, const CudaTarget& target);
void set_loss(Kernels& kernels, const CudaTarget& target);
void set_elementwise(Kernels& kernels, const CudaTarget& target);
void set_unpack(Kernels& kernels, const CudaTarget& target);

/// Sets the functions of attention. By default attention_way() chooses; each way is also a variant. The
/// result is the functions' state and must outlive the kernels. `library` may be null.
std::shared_ptr<void> set_attention(Kernels& kernels, const CudaTarget& target,
                                    std::unique_ptr<AttentionLibrary> library);

/// Sets the functions of linear layers. The result is their state, the library with a workspace from the
/// target's pool, and must outlive the kernels. `multiprocessors` is as in CudaKernelOptions.
/// @throws Error (no_device) without cuBLASLt, Error (internal) if memory runs out.
std::shared_ptr<void> set_linear(Kernels& kernels, const CudaTarget& target, int multiprocessors);

// kernels/cuda/products.cu defines the following, which several themes use.

/// Strides give the memory layout of an operand: value (i, j) is at i * row + j * column.
struct Strides {
  std::int64_t row = 0;
  std::int64_t column = 0;
};
/// A Product is result[m, n] = left[m, k] * right[k, n] + bias[n] or, without bias, is added to the result.
/// It runs on plain cores, for shapes that the library's products do not support. The result has the target's
/// type, or f32.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const void* left = nullptr;
  Strides left_strides;
  const void* right = nullptr;
  Strides right_strides;
  void* result = nullptr;      ///< rows without gaps
  const void* bias = nullptr;  ///< may be null
  bool to_sums = false;        ///< the result is f32, and beta times its old value is added
  Beta beta = Beta::zero;
};
void plain_product(const CudaTarget& target, const char* operation, const Product& product);

/// Adds the column sums of x, or of x times `factors` element by element, to sums[1, columns], in two stages:
/// over at most 256 groups of rows, then over the groups.
void add_column_sums(const CudaTarget& target, const char* operation, Sums sums, ConstMatrix x,
                     const ConstMatrix* factors = nullptr);
/// Runs the second stage: adds to sums[column] the column's `groups` partial sums, which are `columns` apart.
void add_partial_sums(const CudaTarget& target, const char* operation, float* sums, const float* partial,
                      std::int64_t groups, std::int64_t columns);

}  // namespace dflop::cuda
