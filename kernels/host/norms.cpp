// With g = dy * gamma and the normalized row n, the gradient of a row of rms_norm is rstd * (g - n * mean(g *
// n)). For layer_norm it is rstd * (g - mean(g) - n * mean(g * n)).
#include <cmath>

#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

/// Adds a row of `added`, if `added` has data. The addition is a separate statement: together with a product,
/// it could become a fused multiply-add, which rounds differently.
template <typename T>
void add_row(Matrix to, ConstMatrix added, Index row) {
  if (added.data != nullptr) view<T>(to).row(row) += view<T>(added).row(row);
}

template <typename T>
void layer_norm(Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added, ConstMatrix gamma,
                ConstMatrix beta, double epsilon) {
  const auto in = view<T>(x).array();
  auto out = view<T>(y).array();
  auto kept = view<T>(statistics);
  const auto scale = flat<T>(gamma);
  const auto shift = flat<T>(beta);
  for (Index row = 0; row < in.rows(); ++row) {
    add_row<T>(x, added, row);
    const T mean = in.row(row).mean();
    const T variance = (in.row(row) - mean).square().mean();
    const T rstd = T(1) / std::sqrt(variance + static_cast<T>(epsilon));
    out.row(row) = (in.row(row) - mean) * rstd * scale + shift;
    kept(row, 0) = mean;
    kept(row, 1) = rstd;
  }
}

template <typename T>
void layer_norm_backward(Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                         ConstSums statistics, ConstMatrix added) {
  const auto in = view<T>(x).array();
  const auto gradient = view<T>(dy).array();
  const auto kept = view<T>(statistics);
  const auto scale = flat<T>(gamma);
  for (Index row = 0; row < in.rows(); ++row) {
    const T rstd = kept(row, 1);
    const auto normal = (in.row(row) - kept(row, 0)) * rstd;
    if (dgamma.columns > 0) flat<T>(dgamma) += gradient.row(row) * normal;
    if (dbeta.columns > 0) flat<T>(dbeta) += gradient.row(row);
    if (dx.data == nullptr) continue;
    const auto scaled = gradient.row(row) * scale;
    const T mean = scaled.mean();
    const T slope = (scaled * normal).mean();
    view<T>(dx).array().row(row) = (scaled - mean - normal * slope) * rstd;
    add_row<T>(dx, added, row);
  }
}

template <typename T>
void rms_norm(Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added, ConstMatrix gamma,
              double epsilon) {
  const auto in = view<T>(x).array();
  auto out = view<T>(y).array();
  auto kept = view<T>(statistics);
  const auto scale = flat<T>(gamma);
  for (Index row = 0; row < in.rows(); ++row) {
    add_row<T>(x, added, row);
    const T rstd = T(1) / std::sqrt(in.row(row).square().mean() + static_cast<T>(epsilon));
    out.row(row) = in.row(row) * rstd * scale;
    kept(row, 0) = rstd;
  }
}

template <typename T>
void rms_norm_backward(Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x, ConstMatrix gamma,
                       ConstSums statistics, ConstMatrix added) {
  const auto in = view<T>(x).array();
  const auto gradient = view<T>(dy).array();
  const auto kept = view<T>(statistics);
  const auto scale = flat<T>(gamma);
  for (Index row = 0; row < in.rows(); ++row) {
    const T rstd = kept(row, 0);
    const auto normal = in.row(row) * rstd;
    if (dgamma.columns > 0) flat<T>(dgamma) += gradient.row(row) * normal;
    if (dx.data == nullptr) continue;
    const auto scaled = gradient.row(row) * scale;
    const T slope = (scaled * normal).mean();
    view<T>(dx).array().row(row) = (scaled - normal * slope) * rstd;
    add_row<T>(dx, added, row);
  }
}

}  // namespace

void set_norms(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.layer_norm.set<layer_norm<T>>();
    kernels.layer_norm_backward.set<layer_norm_backward<T>>();
    kernels.rms_norm.set<rms_norm<T>>();
    kernels.rms_norm_backward.set<rms_norm_backward<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
