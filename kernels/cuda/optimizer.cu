#include <cmath>

#include "kernels/cuda/each.cuh"
#include "kernels/cuda/operations.hpp"

namespace dflop::cuda {
namespace {

/// The numbers of a step that all values share.
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

/// In f32 `weight` and `master` may be the same memory.
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

}  // namespace

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

}  // namespace dflop::cuda
