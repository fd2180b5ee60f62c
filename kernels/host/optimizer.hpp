// Kernels::adamw on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostOptimizer {
  static void adamw(Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient, const AdamWStep& step);
};

extern template struct HostOptimizer<float>;
extern template struct HostOptimizer<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
