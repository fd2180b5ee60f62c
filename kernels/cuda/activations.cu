// These are the formulas of kernels/host/activations.cpp.
#include <numbers>

#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

// The formula is gelu(x) = x * sigmoid(kLinear * x + kCubic * x^3)
constexpr float kLinear = static_cast<float>(2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
constexpr float kCubic = kLinear * 0.044715f;
constexpr float kQuick = 1.702f;  // gelu_quick(x) = x * sigmoid(kQuick * x)

__device__ float sigmoid(float x) {
  return __fdividef(1.0f,
                    1.0f + __expf(-x));  // two units of the last place; an exact one is ten instructions
}

__device__ float gelu_gate(float x) {
  return sigmoid(x * (kLinear + kCubic * x * x));
}

// Each of these has a function of one value, or its slope, and the operation's name.

struct Gelu {
  static constexpr const char* kName = "gelu";
  __device__ float operator()(float x) const { return x * gelu_gate(x); }
};

struct GeluSlope {
  static constexpr const char* kName = "gelu_backward";
  __device__ float operator()(float x) const {
    const float gate = gelu_gate(x);
    return gate * (1.0f + x * (1.0f - gate) * (kLinear + 3.0f * kCubic * x * x));
  }
};

struct GeluErf {
  static constexpr const char* kName = "gelu_erf";
  __device__ float operator()(float x) const {
    return x * normcdff(x);  // keeps its digits far below zero
  }
};

struct GeluErfSlope {
  static constexpr const char* kName = "gelu_erf_backward";
  __device__ float operator()(float x) const {
    constexpr float kDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    // The error of __expf is less than 1e-7 of dy, because where its relative error is large, the density is
    // small.
    return normcdff(x) + x * kDensity * __expf(-0.5f * x * x);
  }
};

struct GeluQuick {
  static constexpr const char* kName = "gelu_quick";
  __device__ float operator()(float x) const { return x * sigmoid(kQuick * x); }
};

struct GeluQuickSlope {
  static constexpr const char* kName = "gelu_quick_backward";
  __device__ float operator()(float x) const {
    const float gate = sigmoid(kQuick * x);
    return gate * (1.0f + kQuick * x * (1.0f - gate));
  }
};

/// Sets y = f(x).
template <typename T, typename F>
struct Map {
  T* y;
  const T* x;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float values[width];
    load(values, x + first);
#pragma unroll
    for (float& value : values) value = F()(value);
    store(y + first, values);
  }
};

/// Sets dx = dy * slope(x).
template <typename T, typename Slope>
struct MapBackward {
  T* dx;
  const T* dy;
  const T* x;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float values[width];
    float slopes[width];
    load(values, x + first);
    load(slopes, dy + first);
#pragma unroll
    for (int i = 0; i < width; ++i) slopes[i] *= Slope()(values[i]);
    store(dx + first, slopes);
  }
};

/// Returns where the gate of the value `first` of y lies in x; what it opens lies `columns` further.
__device__ std::int64_t gate_place(std::int64_t first, std::int64_t columns) {
  return first + first / columns * columns;
}

template <typename T>
struct Swiglu {
  T* y;
  const T* x;
  std::int64_t columns;  ///< of y

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    const std::int64_t gate_at = gate_place(first, columns);
    float gates[width];
    float values[width];
    load(gates, x + gate_at);
    load(values, x + gate_at + columns);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] *= gates[i] * sigmoid(gates[i]);
    store(y + first, values);
  }
};

template <typename T>
struct SwigluBackward {
  T* dx;
  const T* dy;
  const T* x;
  std::int64_t columns;  ///< of dy

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    const std::int64_t gate_at = gate_place(first, columns);
    float gates[width];
    float values[width];
    float slopes[width];
    load(gates, x + gate_at);
    load(values, x + gate_at + columns);
    load(slopes, dy + first);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float open = sigmoid(gates[i]);
      const float gate = gates[i];
      gates[i] = slopes[i] * values[i] * open * (1.0f + gate * (1.0f - open));
      values[i] = slopes[i] * gate * open;
    }
    store(dx + gate_at, gates);
    store(dx + gate_at + columns, values);
  }
};

template <typename F>
void map(const CudaTarget& target, Matrix y, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const Map<T, F> f{values_of<T>(y), values_of<T>(x)};
    each_value<kVector<T>>(target, F::kName, y.size(), fit_vectors<T>(0, y.data, x.data), f);
  });
}

template <typename Slope>
void map_backward(const CudaTarget& target, Matrix dx, ConstMatrix dy, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const MapBackward<T, Slope> f{values_of<T>(dx), values_of<T>(dy), values_of<T>(x)};
    const bool aligned = fit_vectors<T>(0, dx.data, dy.data, x.data);
    each_value<kVector<T>>(target, Slope::kName, dx.size(), aligned, f);
  });
}

void swiglu(const CudaTarget& target, Matrix y, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const Swiglu<T> f{values_of<T>(y), values_of<T>(x), y.columns};
    each_value<kVector<T>>(target, "swiglu", y.size(), fit_vectors<T>(y.columns, y.data, x.data), f);
  });
}

void swiglu_backward(const CudaTarget& target, Matrix dx, ConstMatrix dy, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const SwigluBackward<T> f{values_of<T>(dx), values_of<T>(dy), values_of<T>(x), dy.columns};
    const bool aligned = fit_vectors<T>(dy.columns, dx.data, dy.data, x.data);
    each_value<kVector<T>>(target, "swiglu_backward", dy.size(), aligned, f);
  });
}

}  // namespace

void set_activations(Kernels& kernels, const CudaTarget& target) {
  kernels.gelu.set<map<Gelu>>(target);
  kernels.gelu_backward.set<map_backward<GeluSlope>>(target);
  kernels.gelu_erf.set<map<GeluErf>>(target);
  kernels.gelu_erf_backward.set<map_backward<GeluErfSlope>>(target);
  kernels.gelu_quick.set<map<GeluQuick>>(target);
  kernels.gelu_quick_backward.set<map_backward<GeluQuickSlope>>(target);
  kernels.swiglu.set<swiglu>(target);
  kernels.swiglu_backward.set<swiglu_backward>(target);
}

}  // namespace dflop::cuda
