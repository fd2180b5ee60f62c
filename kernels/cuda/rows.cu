// These operations look up rows, mix them, and add their gradients. If several rows have the same target, the
// block of the first one adds them all in order. There are no atomic additions, so runs repeat bit for bit.
#include <algorithm>
#include <functional>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

constexpr int kRowThreads = 256;

/// Bytes16 move 16 bytes unchanged.
struct alignas(16) Bytes16 {
  unsigned words[4];
};

/// Sets y[i] = table[ids[i] - first], or zeros if that is not a row of the table. Rows are `columns` Units
/// long, and Unit() is zero.
template <typename Unit>
__global__ void __launch_bounds__(kRowThreads)
    look_up_kernel(Unit* y, const Unit* table, const std::int32_t* ids, std::int64_t first,
                   std::int64_t table_rows, std::int64_t columns) {
  const std::int64_t i = blockIdx.x;
  const std::int64_t row = ids[i] - first;
  const bool found = row >= 0 && row < table_rows;
  for (std::int64_t column = threadIdx.x; column < columns; column += kRowThreads) {
    y[i * columns + column] = found ? table[row * columns + column] : Unit();
  }
}

/// kLooks is the number of ids that a thread compares between two barriers.
constexpr int kLooks = 4;

/// Returns whether one of ids[0, i) is `id`. All threads of the block must take part.
__device__ bool comes_before(const std::int32_t* ids, std::int64_t i, std::int32_t id) {
  bool found = false;
  for (std::int64_t start = 0; start < i && !found; start += kLooks * kRowThreads) {
    bool mine = false;
#pragma unroll
    for (int look = 0; look < kLooks; ++look) {
      const std::int64_t other = start + look * kRowThreads + threadIdx.x;
      mine |= other < i && ids[other] == id;
    }
    found = __syncthreads_or(mine) != 0;
  }
  return found;
}

/// Calls f(j) for each j in [i, count) whose id is `id`, in increasing order, in all threads of the block.
template <typename F>
__device__ void for_same(const std::int32_t* ids, std::int64_t i, std::int64_t count, std::int32_t id, F f) {
  constexpr int kWarps = kRowThreads / kWarp;
  __shared__ unsigned matches[kLooks * kWarps];
  for (std::int64_t start = i; start < count; start += kLooks * kRowThreads) {
#pragma unroll
    for (int look = 0; look < kLooks; ++look) {
      const std::int64_t other = start + look * kRowThreads + threadIdx.x;
      const unsigned of_warp = __ballot_sync(kAllLanes, other < count && ids[other] == id);
      if (threadIdx.x % kWarp == 0) matches[look * kWarps + threadIdx.x / kWarp] = of_warp;
    }
    __syncthreads();
    for (int group = 0; group < kLooks * kWarps; ++group) {
      for (unsigned left = matches[group]; left != 0; left &= left - 1) {
        f(start + group * kWarp + __ffs(static_cast<int>(left)) - 1);
      }
    }
    __syncthreads();  // all threads have read the matches before they are overwritten
  }
}

/// Adds x[i] to y[ids[i] - first]. Block (i, part) adds kRowThreads * width columns of row i. With
/// `distinct`, no id repeats. Otherwise the block of an id's first row adds all rows with this id, and the
/// blocks of its other rows do nothing.
template <int width, typename Sum, typename T>
__global__ void __launch_bounds__(kRowThreads)
    add_rows_kernel(Sum* y, const T* x, const std::int32_t* ids, std::int64_t first, std::int64_t y_rows,
                    std::int64_t count, std::int64_t columns, bool distinct) {
  const std::int64_t i = blockIdx.x;
  const std::int32_t id = ids[i];
  const std::int64_t row = id - first;
  if (row < 0 || row >= y_rows) return;  // the same for all threads
  if (!distinct && comes_before(ids, i, id)) return;
  const std::int64_t column = (std::int64_t{blockIdx.y} * kRowThreads + threadIdx.x) * width;
  const bool inside = column < columns;
  float sum[width] = {};
  if (inside) load(sum, y + row * columns + column);
  const auto add = [&](std::int64_t j) {
    if (!inside) return;
    float values[width];
    load(values, x + j * columns + column);
#pragma unroll
    for (int k = 0; k < width; ++k) sum[k] += values[k];
  };
  if (distinct) {
    add(i);
  } else {
    for_same(ids, i, count, id, add);
  }
  if (inside) store(y + row * columns + column, sum);
}

template <typename Unit>
void look_up_units(const CudaTarget& target, const char* operation, Matrix y, ConstMatrix table, Indices ids,
                   std::int64_t first, std::int64_t units) {
  launch(target, operation, look_up_kernel<Unit>, grid_size(operation, y.rows), kRowThreads, 0,
         values_of<Unit>(y), values_of<Unit>(table), ids.device, first, table.rows, units);
}

void look_up(const CudaTarget& target, const char* operation, Matrix y, ConstMatrix table, Indices ids,
             std::int64_t first) {
  if (y.size() == 0) return;
  const bool half = target.dtype == DType::bf16;
  if (half ? fit_vectors<bf16>(y.columns, y.data, table.data)
           : fit_vectors<float>(y.columns, y.data, table.data)) {
    look_up_units<Bytes16>(target, operation, y, table, ids, first, y.columns / (half ? 8 : 4));
  } else if (half) {
    look_up_units<std::uint16_t>(target, operation, y, table, ids, first, y.columns);
  } else {
    look_up_units<std::uint32_t>(target, operation, y, table, ids, first, y.columns);
  }
}

/// Adds rows of x to rows of y, which are f32 sums or values of T.
template <typename Sum, typename T>
void add_rows(const CudaTarget& target, const char* operation, Sum* y, std::int64_t y_rows, ConstMatrix x,
              Indices ids, std::int64_t first) {
  const bool distinct =  // strictly increasing
      std::adjacent_find(ids.host.begin(), ids.host.end(), std::greater_equal<>()) == ids.host.end();
  const bool vectors = fit_vectors<T>(x.columns, y, x.data);
  const auto kernel = vectors ? add_rows_kernel<kVector<T>, Sum, T> : add_rows_kernel<1, Sum, T>;
  const std::int64_t parts = pieces(x.columns, kRowThreads * (vectors ? kVector<T> : 1));
  const dim3 grid(grid_size(operation, x.rows), static_cast<unsigned>(parts));
  launch(target, operation, kernel, grid, kRowThreads, 0, y, values_of<T>(x), ids.device, first, y_rows,
         x.rows, x.columns, distinct);
}

void embedding(const CudaTarget& target, Matrix y, ConstMatrix table, Indices ids, std::int64_t first) {
  look_up(target, "embedding", y, table, ids, first);
}

void gather_rows(const CudaTarget& target, Matrix y, ConstMatrix x, Indices index) {
  look_up(target, "gather_rows", y, x, index, 0);
}

void embedding_backward(const CudaTarget& target, Sums dtable, ConstMatrix dy, Indices ids,
                        std::int64_t first) {
  if (dy.size() == 0) return;
  with_type(target, [&](auto type) {
    using T = decltype(type);
    add_rows<float, T>(target, "embedding_backward", values_of(dtable), dtable.rows, dy, ids, first);
  });
}

void scatter_add_rows(const CudaTarget& target, Matrix y, ConstMatrix x, Indices index) {
  if (x.size() == 0) return;
  with_type(target, [&](auto type) {
    using T = decltype(type);
    add_rows<T, T>(target, "scatter_add_rows", values_of<T>(y), y.rows, x, index, 0);
  });
}

/// Mix sums weighted rows of x in the order of the list.
template <typename T>
struct Mix {
  T* y;
  const T* x;
  const std::int32_t* begin;
  const std::int32_t* end;
  const std::int32_t* index;
  const float* weights;
  std::int64_t columns;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    const std::int64_t row = first / columns;
    const std::int64_t column = first % columns;
    const int last = end[row];
    float sum[width] = {};
    for (int tap = begin[row]; tap < last; ++tap) {
      float values[width];
      load(values, x + index[tap] * columns + column);
      const float weight = weights[tap];
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += weight * values[i];
    }
    store(y + first, sum);
  }
};

void mix_rows(const CudaTarget& target, Matrix y, ConstMatrix x, Indices begin, Indices end, Indices index,
              ConstSums weights) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const Mix<T> f{values_of<T>(y), values_of<T>(x),    begin.device, end.device,
                   index.device,    values_of(weights), y.columns};
    const bool aligned = fit_vectors<T>(y.columns, y.data, x.data);
    each_value<kVector<T>>(target, "mix_rows", y.size(), aligned, f);
  });
}

template <typename T>
struct ScaleColumns {
  T* y;
  const T* x;
  const T* scale;
  std::int64_t columns;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    float values[width];
    float factors[width];
    load(values, x + first);
    load(factors, scale + first % columns);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] *= factors[i];
    store(y + first, values);
  }
};

void scale_columns(const CudaTarget& target, Matrix y, ConstMatrix x, ConstMatrix scale) {
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const ScaleColumns<T> f{values_of<T>(y), values_of<T>(x), values_of<T>(scale), y.columns};
    const bool aligned = fit_vectors<T>(y.columns, y.data, x.data, scale.data);
    each_value<kVector<T>>(target, "scale_columns", y.size(), aligned, f);
  });
}

void column_products(const CudaTarget& target, Sums sum, ConstMatrix a, ConstMatrix b) {
  add_column_sums(target, "column_products", sum, a, &b);
}

}  // namespace

void set_rows(Kernels& kernels, const CudaTarget& target) {
  kernels.embedding.set<embedding>(target);
  kernels.embedding_backward.set<embedding_backward>(target);
  kernels.mix_rows.set<mix_rows>(target);
  kernels.gather_rows.set<gather_rows>(target);
  kernels.scatter_add_rows.set<scatter_add_rows>(target);
  kernels.scale_columns.set<scale_columns>(target);
  kernels.column_products.set<column_products>(target);
}

}  // namespace dflop::cuda
