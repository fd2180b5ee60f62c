// Kernels::gelu, swiglu and their gradients on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostActivation {
  static void gelu(Matrix y, ConstMatrix x);
  static void gelu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x);
  static void swiglu(Matrix y, ConstMatrix x);
  static void swiglu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x);
};

extern template struct HostActivation<float>;
extern template struct HostActivation<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
