// These operations work on every value alone; activations have their own file.
#include <cmath>

#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

template <typename T>
struct AddTo {
  T* y;
  const T* x;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float sum[width];
    float values[width];
    load(sum, y + first);
    load(values, x + first);
#pragma unroll
    for (int i = 0; i < width; ++i) sum[i] += values[i];
    store(y + first, sum);
  }
};

template <typename T>
struct Round {
  T* y;
  const float* x;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float values[width];
    load(values, x + first);
    store(y + first, values);
  }
};

struct Scale {
  float* y;
  float factor;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float values[width];
    load(values, y + first);
#pragma unroll
    for (float& value : values) value *= factor;
    store(y + first, values);
  }
};

/// Factors are the numbers of a step that all values share.
struct Factors {
  float b1;
  float b2;
  float rest1;  ///< 1 - b1, which in f32 would lose digits
  float rest2;
  float m_scale;
  float v_scale;
  float rate;
  float kept;
  float epsilon;
};

Factors factors_of(const AdamWStep& step) {
  const auto power = static_cast<double>(step.step);
  return {static_cast<float>(step.beta1),
          static_cast<float>(step.beta2),
          static_cast<float>(1.0 - step.beta1),
          static_cast<float>(1.0 - step.beta2),
          static_cast<float>(1.0 / (1.0 - std::pow(step.beta1, power))),
          static_cast<float>(1.0 / (1.0 - std::pow(step.beta2, power))),
          static_cast<float>(step.learning_rate),
          static_cast<float>(1.0 - step.learning_rate * step.weight_decay),
          static_cast<float>(step.epsilon)};
}

/// AdamW is a step of the optimizer. In f32 `weight` and `master` may be the same memory.
template <typename T>
struct AdamW {
  T* weight;
  float* master;
  float* m;
  float* v;
  const float* gradient;
  Factors factors;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float g[width];
    float mean[width];
    float square[width];
    float value[width];
    load(g, gradient + first);
    load(mean, m + first);
    load(square, v + first);
    load(value, master + first);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      mean[i] = factors.b1 * mean[i] + factors.rest1 * g[i];
      square[i] = factors.b2 * square[i] + factors.rest2 * g[i] * g[i];
      const float size = sqrtf(square[i] * factors.v_scale) + factors.epsilon;
      value[i] = factors.kept * value[i] - factors.rate * (mean[i] * factors.m_scale / size);
    }
    store(m + first, mean);
    store(v + first, square);
    store(master + first, value);
    store(weight + first, value);
  }
};

void add(const CudaTarget& target, Matrix y, ConstMatrix x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const AddTo<T> f{values_of<T>(y), values_of<T>(x)};
    each_value<kVector<T>>(target, "add", y.size(), fit_vectors<T>(0, y.data, x.data), f);
  });
}

void round(const CudaTarget& target, Matrix y, ConstSums x) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const Round<T> f{values_of<T>(y), values_of(x)};
    each_value<kVector<T>>(target, "round", y.size(), fit_vectors<T>(0, y.data, x.data), f);
  });
}

void scale(const CudaTarget& target, Sums y, double factor) {
  const Scale f{values_of(y), static_cast<float>(factor)};
  each_value<kVector<float>>(target, "scale", y.size(), fit_vectors<float>(0, y.data), f);
}

void clear(const CudaTarget& target, void* data, std::int64_t count, std::size_t bytes) {
  if (count == 0) return;
  check_cuda(cudaMemsetAsync(data, 0, static_cast<std::size_t>(count) * bytes, target.stream), "zero");
}

void zero_values(const CudaTarget& target, Matrix y) {
  clear(target, y.data, y.size(), bytes_of(target.dtype));
}

void zero_sums(const CudaTarget& target, Sums y) {
  clear(target, y.data, y.size(), sum_bytes_of(target.dtype));
}

void adamw(const CudaTarget& target, Matrix weight, Sums master, Sums m, Sums v, ConstSums gradient,
           const AdamWStep& step) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const AdamW<T> f{values_of<T>(weight), values_of(master),   values_of(m),
                     values_of(v),         values_of(gradient), factors_of(step)};
    const bool aligned = fit_vectors<float>(0, weight.data, master.data, m.data, v.data, gradient.data);
    each_value<kVector<T>>(target, "adamw", weight.size(), aligned, f);
  });
}

}  // namespace

void set_elementwise(Kernels& kernels, const CudaTarget& target) {
  kernels.add.set<add>(target);
  kernels.zero_values.set<zero_values>(target);
  kernels.zero_sums.set<zero_sums>(target);
  kernels.round.set<round>(target);
  kernels.scale.set<scale>(target);
  kernels.adamw.set<adamw>(target);
}

}  // namespace dflop::cuda
