// What Kernels does to whole rows and plain values, on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostRows {
  static void pool(Matrix y, ConstMatrix x, Indices begin, Indices end);
  static void pool_backward(Matrix dx, ConstMatrix dy, Indices begin, Indices end);
  static void gather(Matrix y, ConstMatrix x, Indices index);
  static void scatter_add(Matrix y, ConstMatrix x, Indices index);
  static void add(Matrix y, ConstMatrix x);
  static void zero(Matrix y);
  static void zero(Sums y);
  static void round(Matrix y, ConstSums x);
  static void scale(Sums y, double factor);
};

extern template struct HostRows<float>;
extern template struct HostRows<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
