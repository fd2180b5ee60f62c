// Rows that are added, pooled, rounded and scaled.
#include <algorithm>

#include "kernels/cuda/each.cuh"
#include "kernels/cuda/operations.hpp"

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

template <typename T>
struct Pool {
  T* y;
  const T* x;
  const std::int32_t* begin;
  const std::int32_t* end;
  std::int64_t columns;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    const std::int64_t window = first / columns;
    const std::int64_t column = first % columns;
    const int from = begin[window];
    const int to = end[window];
    float sum[width] = {};
    for (int row = from; row < to; ++row) {
      float values[width];
      load(values, x + row * columns + column);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += values[i];
    }
#pragma unroll
    for (float& value : sum) value /= static_cast<float>(to - from);
    store(y + first, sum);
  }
};

/// The first of [0, count) whose limit is above `row`, where limits never fall.
__device__ int first_above(const std::int32_t* limits, int count, std::int64_t row) {
  int low = 0;
  int high = count;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (limits[middle] > row) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <typename T>
struct PoolBackward {
  T* dx;
  const T* dy;
  const std::int32_t* begin;
  const std::int32_t* end;
  int windows;
  bool in_order;  ///< neither begins nor ends ever fall
  std::int64_t columns;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    const std::int64_t row = first / columns;
    const std::int64_t column = first % columns;
    const int from = in_order ? first_above(end, windows, row) : 0;
    const int to = in_order ? first_above(begin, windows, row) : windows;
    float sum[width] = {};
    for (int window = from; window < to; ++window) {
      if (begin[window] > row || end[window] <= row) continue;
      const float share = 1.0f / static_cast<float>(end[window] - begin[window]);
      float slopes[width];
      load(slopes, dy + window * columns + column);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += share * slopes[i];
    }
    store(dx + first, sum);
  }
};

bool never_falls(Indices indices) {
  return std::is_sorted(indices.host.begin(), indices.host.end());
}

}  // namespace

void pool_rows(const CudaTarget& target, Matrix y, ConstMatrix x, Indices begin, Indices end) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const Pool<T> f{values_of<T>(y), values_of<T>(x), begin.device, end.device, y.columns};
    const bool aligned = fit_vectors<T>(y.columns, y.data, x.data);
    each_value<kVector<T>>(target, "pool_rows", y.size(), aligned, f);
  });
}

void pool_rows_backward(const CudaTarget& target, Matrix dx, ConstMatrix dy, Indices begin, Indices end) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const bool in_order = never_falls(begin) && never_falls(end);
    const PoolBackward<T> f{values_of<T>(dx),          values_of<T>(dy), begin.device, end.device,
                            static_cast<int>(dy.rows), in_order,         dx.columns};
    const bool aligned = fit_vectors<T>(dx.columns, dx.data, dy.data);
    each_value<kVector<T>>(target, "pool_rows_backward", dx.size(), aligned, f);
  });
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

void scale(const CudaTarget& target, Sums y, double factor) {
  const Scale f{values_of(y), static_cast<float>(factor)};
  each_value<kVector<float>>(target, "scale", y.size(), fit_vectors<float>(0, y.data), f);
}

}  // namespace dflop::cuda
