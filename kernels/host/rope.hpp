// Kernels::rope on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostRope {
  static void rope(Matrix qkv, const AttentionShape& shape, Indices positions, double base, bool inverse);
};

extern template struct HostRope<float>;
extern template struct HostRope<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
