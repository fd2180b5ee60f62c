// A library's attention takes some calls of attention, in bf16, in place of the own kernels.
#pragma once

#include <string_view>

#include "kernels/kernels.hpp"

namespace dflop::cuda {

/// An AttentionLibrary computes the operations attention and attention_backward of kernels/kernels.hpp on one
/// stream. Each function returns false, and has done nothing, where it does not take the call; whether it
/// does follows from the call alone, so that a run repeats.
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
