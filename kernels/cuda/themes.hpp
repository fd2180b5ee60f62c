// The set_...() functions here set the operations of kernels/kernels.hpp on a GPU, for matrices in f32 or
// bf16 with sums in f32. An operation's function gets checked arguments, enqueues its work in the target's
// stream and returns.
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

/// Sets the functions of attention. By default attention_way() chooses the implementation; each
/// implementation is also a variant. The returned state belongs to the functions and must outlive the
/// kernels. `library` may be null.
std::shared_ptr<void> set_attention(Kernels& kernels, const CudaTarget& target,
                                    std::unique_ptr<AttentionLibrary> library);

/// Sets the functions of linear layers. Returns their state, which must outlive the kernels: the library, and
/// a workspace from the target's pool. For `multiprocessors` see CudaKernelOptions.
/// @throws Error (no_device) if cuBLASLt is missing, Error (internal) if memory runs out.
std::shared_ptr<void> set_linear(Kernels& kernels, const CudaTarget& target, int multiprocessors);

// kernels/cuda/products.cu defines the following, which several themes use.

/// Strides give the memory layout of an operand: value (i, j) is at i * row + j * column.
struct Strides {
  std::int64_t row = 0;
  std::int64_t column = 0;
};
/// A Product describes result[m, n] = left[m, k] * right[k, n] + bias[n]. With `to_sums`, the result is f32
/// and may be added to its old value; otherwise it has the target's type. plain_product() computes it on
/// plain cores, for shapes that cuBLASLt does not support.
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
  bool to_sums = false;        ///< the result is f32; beta times its old value is added
  Beta beta = Beta::zero;
};
void plain_product(const CudaTarget& target, const char* operation, const Product& product);

/// Adds the column sums of x to sums[1, columns]; with `factors`, the column sums of x times `factors`,
/// element by element. There are two stages: sums over at most 256 groups of rows, then over the groups.
void add_column_sums(const CudaTarget& target, const char* operation, Sums sums, ConstMatrix x,
                     const ConstMatrix* factors = nullptr);
/// Runs the second stage of column sums: adds a column's `groups` partial sums, which are `columns` apart, to
/// sums[column].
void add_partial_sums(const CudaTarget& target, const char* operation, float* sums, const float* partial,
                      std::int64_t groups, std::int64_t columns);

}  // namespace dflop::cuda
