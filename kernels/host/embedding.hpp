// Kernels::embedding and its gradient on the host.
#pragma once

#include "kernels/host/target.hpp"
#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
struct HostEmbedding {
  static void forward(Matrix y, ConstMatrix table, Indices ids, std::int64_t first);
  static void backward(Sums dtable, ConstMatrix dy, Indices ids, std::int64_t first);
};

extern template struct HostEmbedding<float>;
extern template struct HostEmbedding<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
