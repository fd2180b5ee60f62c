// An AttentionLibrary wraps an external library that computes some bf16 attention calls instead of the
// project's own kernels.
#pragma once

#include <string_view>

#include "kernels/kernels.hpp"

namespace dflop::cuda {

/// An AttentionLibrary computes the operations attention and attention_backward of kernels/kernels.hpp on one
/// stream. If forward() or backward() does not support a call, it does nothing and returns false. The answer
/// depends only on the call, so that runs are repeatable.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  /// Returns the variant's name, a literal.
  virtual std::string_view name() const = 0;
  virtual bool forward(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape,
                       Indices offsets) = 0;
  virtual bool backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                        const AttentionShape& shape, Indices offsets) = 0;
};

}  // namespace dflop::cuda
