// Kernels::attention and its gradient on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostAttention {
  static void forward(Matrix out, Sums statistics, ConstMatrix qkv, const AttentionShape& shape,
                      Indices offsets);
  static void backward(Matrix dqkv, ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv,
                       const AttentionShape& shape, Indices offsets);
};

extern template struct HostAttention<float>;
extern template struct HostAttention<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
