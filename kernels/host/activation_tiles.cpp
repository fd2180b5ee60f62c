// These variants compute activations with the exponentials of tiles.hpp. The formulas are the same as in
// activations.cpp.
#include <numbers>

#include "kernels/host/tiles.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

constexpr double kGeluLinear = 2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kGeluCubic = kGeluLinear * 0.044715;

template <typename T>
inline Vector<T> sigmoid_of(Vector<T> x) {
  constexpr T kMax = sizeof(T) == 4 ? T(88) : T(709);
  const Vector<T> down = -x > kMax ? Vector<T>{} + kMax : -x;
  return T(1) / (T(1) + exponential<T>(down));
}

template <typename T>
inline Vector<T> gelu_sigmoid(Vector<T> x) {
  return sigmoid_of<T>(x * (static_cast<T>(kGeluLinear) + static_cast<T>(kGeluCubic) * x * x));
}

/// Calls f(first, count) for [0, size) in pieces of at most one vector.
template <typename T, typename F>
inline void for_each_vector(Index size, F f) {
  Index first = 0;
  for (; first + kLanes<T> <= size; first += kLanes<T>) f(first, std::integral_constant<Index, kLanes<T>>());
  if (first < size) f(first, size - first);
}

/// Loads the first values of a vector; the others are 0.
template <typename T>
inline Vector<T> load_some(const T* from, Index count) {
  Vector<T> vector = {};
  std::memcpy(&vector, from, static_cast<std::size_t>(count) * sizeof(T));
  return vector;
}
template <typename T>
inline void store_some(T* to, Index count, Vector<T> vector) {
  std::memcpy(to, &vector, static_cast<std::size_t>(count) * sizeof(T));
}

template <typename T>
void gelu_by_tiles(Matrix y, ConstMatrix x) {
  const auto* in = static_cast<const T*>(x.data);
  auto* out = static_cast<T*>(y.data);
  for_each_vector<T>(x.size(), [&](Index first, auto count) {
    const Vector<T> value = load_some(in + first, count);
    store_some<T>(out + first, count, value * gelu_sigmoid<T>(value));
  });
}

template <typename T>
void gelu_backward_by_tiles(Matrix dx, ConstMatrix dy, ConstMatrix x) {
  const auto* in = static_cast<const T*>(x.data);
  const auto* gradient = static_cast<const T*>(dy.data);
  auto* out = static_cast<T*>(dx.data);
  for_each_vector<T>(x.size(), [&](Index first, auto count) {
    const Vector<T> value = load_some(in + first, count);
    const Vector<T> gate = gelu_sigmoid<T>(value);
    const Vector<T> slope = static_cast<T>(kGeluLinear) + static_cast<T>(3 * kGeluCubic) * value * value;
    store_some<T>(out + first, count,
                  load_some(gradient + first, count) * gate * (T(1) + value * (T(1) - gate) * slope));
  });
}

template <typename T>
void swiglu_by_tiles(Matrix y, ConstMatrix x) {
  const Index width = y.columns;
  for (Index row = 0; row < y.rows; ++row) {
    const auto* gates = static_cast<const T*>(x.data) + row * x.columns;
    auto* out = static_cast<T*>(y.data) + row * width;
    for_each_vector<T>(width, [&](Index first, auto count) {
      const Vector<T> gate = load_some(gates + first, count);
      store_some<T>(out + first, count, gate * sigmoid_of<T>(gate) * load_some(gates + width + first, count));
    });
  }
}

template <typename T>
void swiglu_backward_by_tiles(Matrix dx, ConstMatrix dy, ConstMatrix x) {
  const Index width = dy.columns;
  for (Index row = 0; row < dy.rows; ++row) {
    const auto* gates = static_cast<const T*>(x.data) + row * x.columns;
    const auto* slopes = static_cast<const T*>(dy.data) + row * width;
    auto* out = static_cast<T*>(dx.data) + row * x.columns;
    for_each_vector<T>(width, [&](Index first, auto count) {
      const Vector<T> gate = load_some(gates + first, count);
      const Vector<T> up = load_some(gates + width + first, count);
      const Vector<T> slope = load_some(slopes + first, count);
      const Vector<T> open = sigmoid_of<T>(gate);
      store_some<T>(out + first, count, slope * up * open * (T(1) + gate * (T(1) - open)));
      store_some<T>(out + width + first, count, slope * gate * open);
    });
  }
}

}  // namespace

void add_tiled_activations(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.gelu.add<gelu_by_tiles<T>>(DFLOP_HOST_TARGET_NAME " vectors");
    kernels.gelu_backward.add<gelu_backward_by_tiles<T>>(DFLOP_HOST_TARGET_NAME " vectors");
    kernels.swiglu.add<swiglu_by_tiles<T>>(DFLOP_HOST_TARGET_NAME " vectors");
    kernels.swiglu_backward.add<swiglu_backward_by_tiles<T>>(DFLOP_HOST_TARGET_NAME " vectors");
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
