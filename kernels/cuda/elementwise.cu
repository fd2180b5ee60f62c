// These operations work on each value by itself. Activations have their own file.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/reduce.cuh"
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

/// Factors are the numbers of an optimizer step, the same for all values.
struct Factors {
  float b1;
  float b2;
  float rest1;  ///< 1 - b1, computed in f64, as f32 would lose digits
  float rest2;
  float m_scale;
  float v_scale;
  float rate;
  float kept;
  float epsilon;
  float gradient;
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
          static_cast<float>(step.epsilon),
          static_cast<float>(step.gradient_factor)};
}

/// AdamW computes one step of the optimizer. In f32, `weight` and `master` may be the same memory.
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
      g[i] *= factors.gradient;
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

constexpr int kSquareThreads = 256;
constexpr std::int64_t kSquareBlocks = 1024;

/// Sets partial[block] to the block's share of the sum of squares. Threads read `width` values at a time. A
/// second kernel adds the partial sums in a fixed order, so that repeated results are bit-identical.
template <int width>
__global__ void __launch_bounds__(kSquareThreads)
    squares_kernel(float* partial, const float* x, std::int64_t size) {
  const std::int64_t step = std::int64_t{gridDim.x} * kSquareThreads * width;
  float sum = 0.0f;
  for (std::int64_t first = (std::int64_t{blockIdx.x} * kSquareThreads + threadIdx.x) * width; first < size;
       first += step) {
    if (first + width <= size) {
      float values[width];
      load(values, x + first);
#pragma unroll
      for (int i = 0; i < width; ++i) sum += values[i] * values[i];
    } else {
      for (std::int64_t i = first; i < size; ++i) sum += x[i] * x[i];
    }
  }
  sum = reduce_block(sum, 0.0f, Add());
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

void sum_of_squares(const CudaTarget& target, Sums sum, ConstSums x) {
  constexpr int kWidth = kVector<float>;
  if (x.size() == 0) return;
  const std::int64_t blocks = std::min(kSquareBlocks, pieces(x.size(), kSquareThreads * kWidth));
  const StreamBuffer partial(target, "sum_of_squares", blocks);
  const auto kernel = fit_vectors<float>(0, x.data) ? squares_kernel<kWidth> : squares_kernel<1>;
  launch(target, "sum_of_squares", kernel, grid_size("sum_of_squares", blocks), kSquareThreads, 0,
         partial.data(), values_of(x), x.size());
  add_partial_sums(target, "sum_of_squares", values_of(sum), partial.data(), blocks, 1);
}

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
  kernels.sum_of_squares.set<sum_of_squares>(target);
  kernels.adamw.set<adamw>(target);
}

}  // namespace dflop::cuda
