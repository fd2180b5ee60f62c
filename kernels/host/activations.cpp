// gelu and swiglu multiply by a sigmoid. For gelu, (1 + tanh(u)) / 2 is computed as the sigmoid 1 / (1 +
// exp(-2 u)), which loses no digits for x far below zero and runs in vectors for both precisions.
#include <iterator>
#include <numbers>

#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

// The formula is gelu(x) = x * sigmoid(kLinear * x + kCubic * x^3).
constexpr double kLinear = 2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // 2 sqrt(2 / pi)
constexpr double kCubic = kLinear * 0.044715;
constexpr double kQuick = 1.702;  // gelu_quick(x) = x * sigmoid(kQuick * x)

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

// For u >= 0, the fraction of a standard normal distribution below -u is exp(-u^2 / 2) P(q) / (u + 4) with q
// = (u - 4) / (u + 4). No factor loses digits for large u. P is the polynomial of its degree with the
// smallest max relative error, found by Remez' exchange. The error is 9e-9 up to u = 14.5 for f32, and 3e-16
// up to u = 37.6 for f64. For larger u, the fraction is smaller than the smallest number of full precision.
// All computation is in f64, because f32 would round about ten times.

/// Values of larger magnitude than kFar are clamped to it.
template <typename T>
constexpr double kFar = 14.5;
template <>
constexpr double kFar<double> = 37.6;

/// kTail holds the coefficients of P.
template <typename T>
constexpr double kTail[] = {0.75528513538505459886,    -0.60789658826742677854,  0.38713690111208987147,
                            -0.18652344156278597955,   0.060403830935844312998,  -0.0075252707136911675827,
                            -0.0035125531438481852557, 0.0015699226073000900099, 0.00017935282034858274519,
                            -0.00013197218994914643292};
template <>
constexpr double kTail<double>[] = {
    0.75528513041575132027,     -0.60789664197189006877,   0.3871374007422629462,
    -0.18652185795987164268,    0.060396574888687291828,   -0.0075401889604010803888,
    -0.0034796923262852437363,  0.0016308183751732995582,  0.00013334392307072732054,
    -0.00023109436489372142353, -1.9060840425031258976e-6, 3.514240246054779357e-5,
    7.090225317906908981e-7,    -5.9147346827390658383e-6, -6.123195602026421995e-7,
    1.0141087322244750721e-6,   2.4635157031671261286e-7,  -1.5008827213205932501e-7,
    -6.2313749752472368595e-8,  1.3384655999022341817e-8,  7.8907744991655073881e-9};

/// Returns exp(-u^2 / 2). The relative rounding error of u^2 is multiplied by u^2 / 2 in the result. So for
/// f64, the function computes this error from u rounded to 1/256, whose square is exact, and corrects the
/// result.
template <typename T>
Chunk<double> bell(const Chunk<double>& u) {
  const Chunk<double> exponent = -0.5 * u.square();
  if constexpr (sizeof(T) == sizeof(float)) return exponent.exp();
  const Chunk<double> near = (u * 256.0).rint() / 256.0;
  const Chunk<double> rest = (-0.5 * near.square() - exponent) - 0.5 * (u - near) * (u + near);
  const Chunk<double> rounded = exponent.exp();
  return rounded + rounded * rest;
}

/// Returns the fraction of a standard normal distribution below -u.
template <typename T>
Chunk<double> normal_below(const Chunk<double>& u, const Chunk<double>& bell_of_u) {
  constexpr int kDegree = static_cast<int>(std::size(kTail<T>)) - 1;
  const Chunk<double> share = (u + 4.0).inverse();
  const Chunk<double> q = (u - 4.0) * share;
  Chunk<double> sum = q * kTail<T>[kDegree] + kTail<T>[kDegree - 1];
  for (int i = kDegree - 2; i >= 0; --i) sum = sum * q + kTail<T>[i];
  return bell_of_u * share * sum;
}

/// Computes gelu_erf(x) = max(x, 0) - u * (fraction of a standard normal distribution below -u), with u =
/// |x|.
template <typename T>
void gelu_erf(Matrix y, ConstMatrix x) {
  const auto in = flat<T>(x);
  auto out = flat<T>(y);
  for_each_chunk(in.size(), [&](Index first, Index count) {
    const Chunk<double> values = in.segment(first, count).template cast<double>();
    const Chunk<double> u = values.abs().min(kFar<T>);
    out.segment(first, count) = (values.max(0.0) - u * normal_below<T>(u, bell<T>(u))).template cast<T>();
  });
}

/// Computes dx = dy * (derivative of gelu_erf at x). The derivative is the fraction of a standard normal
/// distribution below x, plus x times the density at x. Its value at u is 1 minus its value at -u.
template <typename T>
void gelu_erf_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) {
  constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  const auto in = flat<T>(x);
  const auto gradient = flat<T>(dy);
  auto out = flat<T>(dx);
  for_each_chunk(in.size(), [&](Index first, Index count) {
    const Chunk<double> values = in.segment(first, count).template cast<double>();
    const Chunk<double> u = values.abs().min(kFar<T>);
    const Chunk<double> bell_of_u = bell<T>(u);
    const Chunk<double> at_minus_u = normal_below<T>(u, bell_of_u) - kDensity * u * bell_of_u;
    const Chunk<double> above = (values * 1e300).max(0.0).min(1.0);  // 1 above zero, else 0; runs in vectors
    const Chunk<double> slope = above + (1.0 - 2.0 * above) * at_minus_u;
    out.segment(first, count) = gradient.segment(first, count) * slope.template cast<T>();
  });
}

template <typename T>
void gelu_quick(Matrix y, ConstMatrix x) {
  const auto in = flat<T>(x);
  auto out = flat<T>(y);
  for_each_chunk(in.size(), [&](Index first, Index count) {
    const auto values = in.segment(first, count);
    out.segment(first, count) = values * sigmoid<T>(static_cast<T>(kQuick) * values);
  });
}

template <typename T>
void gelu_quick_backward(Matrix dx, ConstMatrix dy, ConstMatrix x) {
  const auto in = flat<T>(x);
  const auto gradient = flat<T>(dy);
  auto out = flat<T>(dx);
  for_each_chunk(in.size(), [&](Index first, Index count) {
    const Chunk<T> scaled = static_cast<T>(kQuick) * in.segment(first, count);
    const Chunk<T> gate = sigmoid<T>(scaled);
    out.segment(first, count) = gradient.segment(first, count) * gate * (T(1) + scaled * (T(1) - gate));
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
    kernels.gelu_quick.set<gelu_quick<T>>();
    kernels.gelu_quick_backward.set<gelu_quick_backward<T>>();
    kernels.swiglu.set<swiglu<T>>();
    kernels.swiglu_backward.set<swiglu_backward<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
