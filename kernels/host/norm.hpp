// Kernels::layer_norm, rms_norm and their gradients on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostNorm {
  static void layer_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, ConstMatrix beta,
                         double epsilon);
  static void layer_norm_backward(Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x,
                                  ConstMatrix gamma, ConstSums statistics);
  static void rms_norm(Matrix y, Sums statistics, ConstMatrix x, ConstMatrix gamma, double epsilon);
  static void rms_norm_backward(Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                                ConstSums statistics);
};

extern template struct HostNorm<float>;
extern template struct HostNorm<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
