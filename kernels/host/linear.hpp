// Kernels::linear and its gradients on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostLinear {
  static void forward(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias);
  static void backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight);
  static void backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x);
};

extern template struct HostLinear<float>;
extern template struct HostLinear<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
