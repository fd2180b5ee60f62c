// The cross entropy of Kernels on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostCrossEntropy {
  static void parts(Sums parts, ConstMatrix logits, Indices targets, std::int64_t first);
  static void merge(Sums merged, ConstSums parts, int ranks);
  static void backward(Matrix logits, Sums loss, ConstSums merged, Indices targets, std::int64_t first,
                       double weight);
};

extern template struct HostCrossEntropy<float>;
extern template struct HostCrossEntropy<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
