// These activations use the same formulas as kernels/host/activations.cpp.
#include <numbers>

#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

// gelu(x) = x * sigmoid(kLinear * x + kCubic * x^3)
constexpr float kLinear = static_cast<float>(2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
constexpr float kCubic = kLinear * 0.044715f;

__device__ float sigmoid(float x) {
  // This is accurate to two units in the last place. An exact division takes ten instructions.
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

__device__ float gelu_gate(float x) {
  return sigmoid(x * (kLinear + kCubic * x * x));
}

template <typename T>
struct Gelu {
  T* y;
  const T* x;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float values[width];
    load(values, x + first);
#pragma unroll
    for (float& value : values) value *= gelu_gate(value);
    store(y + first, values);
  }
};

template <typename T>
struct GeluBackward {
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
    for (int i = 0; i < width; ++i) {
      const float value = values[i];
      const float gate = gelu_gate(value);
      slopes[i] *= gate * (1.0f + value * (1.0f - gate) * (kLinear + 3.0f * kCubic * value * value));
    }
    store(dx + first, slopes);
  }
};

template <typename T>
struct GeluErf {
  T* y;
  const T* x;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float values[width];
    load(values, x + first);
#pragma unroll
    for (float& value : values) value *= normcdff(value);  // unlike 1 + erf(x), accurate far below zero
    store(y + first, values);
  }
};

template <typename T>
struct GeluErfBackward {
  T* dx;
  const T* dy;
  const T* x;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    constexpr float kDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    float values[width];
    float slopes[width];
    load(values, x + first);
    load(slopes, dy + first);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float value = values[i];
      // The error of __expf is less than 1e-7 of dy: its relative error is large only where the density is
      // small.
      slopes[i] *= normcdff(value) + value * kDensity * __expf(-0.5f * value * value);
    }
    store(dx + first, slopes);
  }
};

/// Returns the index in x of the gate of y's value `first`. The gated value is `columns` values further.
__device__ std::int64_t gate_place(std::int64_t first, std::int64_t columns) {
  return first + first / columns * columns;
}

template <typename T>
struct Swiglu {
  T* y;
  const T* x;
  std::int64_t columns;  ///< columns of y

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
  std::int64_t columns;  ///< columns of dy

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

void gelu(const CudaTarget& target, Matrix y, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const Gelu<T> f{values_of<T>(y), values_of<T>(x)};
    each_value<kVector<T>>(target, "gelu", y.size(), fit_vectors<T>(0, y.data, x.data), f);
  });
}

void gelu_backward(const CudaTarget& target, Matrix dx, ConstMatrix dy, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const GeluBackward<T> f{values_of<T>(dx), values_of<T>(dy), values_of<T>(x)};
    const bool aligned = fit_vectors<T>(0, dx.data, dy.data, x.data);
    each_value<kVector<T>>(target, "gelu_backward", dx.size(), aligned, f);
  });
}

void gelu_erf(const CudaTarget& target, Matrix y, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const GeluErf<T> f{values_of<T>(y), values_of<T>(x)};
    each_value<kVector<T>>(target, "gelu_erf", y.size(), fit_vectors<T>(0, y.data, x.data), f);
  });
}

void gelu_erf_backward(const CudaTarget& target, Matrix dx, ConstMatrix dy, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const GeluErfBackward<T> f{values_of<T>(dx), values_of<T>(dy), values_of<T>(x)};
    const bool aligned = fit_vectors<T>(0, dx.data, dy.data, x.data);
    each_value<kVector<T>>(target, "gelu_erf_backward", dx.size(), aligned, f);
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
  kernels.gelu.set<gelu>(target);
  kernels.gelu_backward.set<gelu_backward>(target);
  kernels.gelu_erf.set<gelu_erf>(target);
  kernels.gelu_erf_backward.set<gelu_erf_backward>(target);
  kernels.swiglu.set<swiglu>(target);
  kernels.swiglu_backward.set<swiglu_backward>(target);
}

}  // namespace dflop::cuda
