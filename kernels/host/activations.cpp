// Two are x * sigmoid(something): (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), of which the right side loses no
// digits where x is far below zero and runs in vectors for either precision.
#include <cmath>
#include <numbers>

#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

// The formula is gelu(x) = x * sigmoid(kLinear * x + kCubic * x^3)
constexpr double kLinear = 2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // 2 sqrt(2 / pi)
constexpr double kCubic = kLinear * 0.044715;

template <typename T, typename Values>
Chunk<T> sigmoid(const Values& x) {
  return (T(1) + (-x).exp()).inverse();
}

template <typename T, typename Values>
Chunk<T> gelu_gate(const Values& x) {
  return sigmoid<T>(x * (static_cast<T>(kLinear) + static_cast<T>(kCubic) * x.square()));
}

template <typename T>
void gelu(Matrix y, ConstMatrix x) {
  const auto in = flat<T>(x);
  auto out = flat<T>(y);
  for_each_chunk(in.size(), [&](Index first, Index count) {
    const auto values = in.segment(first, count);
    out.segment(first, count) = values * gelu_gate<T>(values);
  });
}

template <typename T>
void gelu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) {
  const auto in = flat<T>(x);
  const auto gradient = flat<T>(dy);
  auto out = flat<T>(dx);
  for_each_chunk(in.size(), [&](Index first, Index count) {
    const auto values = in.segment(first, count);
    const Chunk<T> gate = gelu_gate<T>(values);
    const auto slope = static_cast<T>(kLinear) + static_cast<T>(3 * kCubic) * values.square();
    out.segment(first, count) =
        gradient.segment(first, count) * gate * (T(1) + values * (T(1) - gate) * slope);
  });
}

/// Returns the part of a standard normal distribution that lies below x.
template <typename T>
T normal_below(T x) {
  return T(0.5) * std::erfc(x * static_cast<T>(-1.0 / std::numbers::sqrt2));
}

template <typename T>
void gelu_erf(Matrix y, ConstMatrix x) {
  flat<T>(y) = flat<T>(x).unaryExpr([](T value) { return value * normal_below(value); });
}

template <typename T>
void gelu_erf_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) {
  constexpr T kDensity = static_cast<T>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  flat<T>(dx) = flat<T>(dy).binaryExpr(flat<T>(x), [](T slope, T value) {
    return slope * (normal_below(value) + value * kDensity * std::exp(T(-0.5) * value * value));
  });
}

template <typename T>
void swiglu(Matrix y, ConstMatrix x) {
  const auto in = view<T>(x).array();
  auto out = view<T>(y).array();
  const Index width = out.cols();
  for (Index row = 0; row < out.rows(); ++row) {
    for_each_chunk(width, [&](Index first, Index count) {
      const auto gate = in.row(row).segment(first, count);
      const auto up = in.row(row).segment(width + first, count);
      out.row(row).segment(first, count) = gate * sigmoid<T>(gate) * up;
    });
  }
}

template <typename T>
void swiglu_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) {
  const auto in = view<T>(x).array();
  const auto gradient = view<T>(dy).array();
  auto out = view<T>(dx).array();
  const Index width = gradient.cols();
  for (Index row = 0; row < in.rows(); ++row) {
    for_each_chunk(width, [&](Index first, Index count) {
      const auto gate = in.row(row).segment(first, count);
      const auto up = in.row(row).segment(width + first, count);
      const auto slope = gradient.row(row).segment(first, count);
      const Chunk<T> open = sigmoid<T>(gate);
      out.row(row).segment(first, count) = slope * up * open * (T(1) + gate * (T(1) - open));
      out.row(row).segment(width + first, count) = slope * gate * open;
    });
  }
}

}  // namespace

void set_activations(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.gelu.set<gelu<T>>();
    kernels.gelu_backward.set<gelu_backward<T>>();
    kernels.gelu_erf.set<gelu_erf<T>>();
    kernels.gelu_erf_backward.set<gelu_erf_backward<T>>();
    kernels.swiglu.set<swiglu<T>>();
    kernels.swiglu_backward.set<swiglu_backward<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
