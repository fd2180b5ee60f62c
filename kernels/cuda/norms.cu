// layer_norm and rms_norm share their kernels. `centered` selects layer_norm, which subtracts the mean.
#include <algorithm>

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

// In the forward, one block processes one row. It reads the row from memory once; later passes over the row
// read it from the first-level cache.

constexpr int kForwardThreads = 256;

/// Calls f(column, values) for the vectors of `width` values of a row that belong to this thread of the
/// block.
template <int width, typename T, typename F>
__device__ void for_row(const T* row, std::int64_t columns, F f) {
  for (std::int64_t column = threadIdx.x * width; column < columns; column += kForwardThreads * width) {
    float values[width];
    load(values, row + column);
    f(column, values);
  }
}

/// Calls f like for_row(), in the first pass over a row. With `adds`, it first adds `added` to the row and
/// stores the sums. Later passes need no barrier, because each thread reads only the columns that it wrote.
template <int width, bool adds, typename T, typename F>
__device__ void for_sum(T* row, const T* added, std::int64_t columns, F f) {
  for_row<width>(row, columns, [&](std::int64_t column, float(&values)[width]) {
    if constexpr (adds) {
      float more[width];
      load(more, added + column);
#pragma unroll
      for (int i = 0; i < width; ++i) values[i] = to_float(from_float<T>(values[i] + more[i]));
      store(row + column, values);
    }
    f(column, values);
  });
}

/// Computes layer_norm (which subtracts the mean and adds beta) if `centered`, else rms_norm. With `adds`,
/// first adds `added` to x.
template <bool centered, bool adds, int width, typename T>
__global__ void __launch_bounds__(kForwardThreads)
    norm_kernel(T* y, float* statistics, T* x, const T* added, const T* gamma, const T* beta,
                std::int64_t columns, float epsilon) {
  const std::int64_t row = blockIdx.x;
  T* in = x + row * columns;
  const T* more = adds ? added + row * columns : nullptr;
  T* out = y + row * columns;
  float mean = 0.0f;
  if constexpr (centered) {
    float sum = 0.0f;
    for_sum<width, adds>(in, more, columns, [&](std::int64_t, const float(&values)[width]) {
#pragma unroll
      for (const float value : values) sum += value;
    });
    mean = reduce_block(sum, 0.0f, Add()) / static_cast<float>(columns);
  }
  float squares = 0.0f;
  for_sum<width, adds && !centered>(in, more, columns, [&](std::int64_t, const float(&values)[width]) {
#pragma unroll
    for (const float value : values) squares += (value - mean) * (value - mean);
  });
  const float variance = reduce_block(squares, 0.0f, Add()) / static_cast<float>(columns);
  const float rstd = 1.0f / sqrtf(variance + epsilon);
  for_row<width>(in, columns, [&](std::int64_t column, float(&values)[width]) {
    float scales[width];
    float shifts[width] = {};
    load(scales, gamma + column);
    if constexpr (centered) load(shifts, beta + column);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = (values[i] - mean) * rstd * scales[i] + shifts[i];
    store(out + column, values);
  });
  if (threadIdx.x != 0) return;
  if constexpr (centered) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = rstd;
  } else {
    statistics[row] = rstd;
  }
}

template <bool centered>
void norm(const CudaTarget& target, const char* operation, Matrix y, Sums statistics, Matrix x,
          ConstMatrix added, ConstMatrix gamma, ConstMatrix beta, double epsilon) {
  if (x.rows == 0) return;
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const bool vectors = fit_vectors<T>(x.columns, y.data, x.data, added.data, gamma.data, beta.data);
    const auto kernel =
        added.data != nullptr
            ? (vectors ? norm_kernel<centered, true, kVector<T>, T> : norm_kernel<centered, true, 1, T>)
            : (vectors ? norm_kernel<centered, false, kVector<T>, T> : norm_kernel<centered, false, 1, T>);
    launch(target, operation, kernel, grid_size(operation, x.rows), kForwardThreads, 0, values_of<T>(y),
           values_of(statistics), values_of<T>(x), values_of<T>(added), values_of<T>(gamma),
           values_of<T>(beta), x.columns, static_cast<float>(epsilon));
  });
}

void layer_norm(const CudaTarget& target, Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added,
                ConstMatrix gamma, ConstMatrix beta, double epsilon) {
  norm<true>(target, "layer_norm", y, statistics, x, added, gamma, beta, epsilon);
}

void rms_norm(const CudaTarget& target, Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added,
              ConstMatrix gamma, double epsilon) {
  norm<false>(target, "rms_norm", y, statistics, x, added, gamma, ConstMatrix(), epsilon);
}

// The backward computes dx and the column sums in one pass over dy and x. A block processes every kBlocks-th
// row. Each thread keeps the sums of its own columns in registers, and a second kernel adds the sums of the
// blocks. If rows are too wide for the registers, further passes sum the remaining columns.

constexpr int kBackwardThreads = 512;
constexpr std::int64_t kBlocks = 256;  ///< a fixed number, so that all devices add in the same order

/// kSteps is the number of vectors of a row that a thread sums in one pass. More would not fit in the 64
/// registers of a thread.
template <bool centered>
constexpr int kSteps = centered ? 1 : 2;

/// A Pass describes one launch. It computes only outputs whose pointers are not null.
template <typename T>
struct Pass {
  T* dx;
  float* dgamma;  ///< [blocks, columns], one partial sum per block
  float* dbeta;
  const T* dy;
  const T* x;
  const T* gamma;
  const float* statistics;
  const T* added;  ///< added to dx, if the kernel adds
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t first;  ///< the pass sums the columns [first, last)
  std::int64_t last;
};

/// Returns the mean and 1 / deviation that the forward stored.
template <bool centered>
__device__ float2 kept_of(const float* statistics, std::int64_t row) {
  if constexpr (centered) return make_float2(statistics[2 * row], statistics[2 * row + 1]);
  return make_float2(0.0f, statistics[row]);
}

/// Begins to load a row into the second-level cache while the block still works on the previous row.
template <typename T>
__device__ void prefetch_row(const T* row, std::int64_t columns) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(T));
  for (std::int64_t column = threadIdx.x * kLine; column < columns; column += kBackwardThreads * kLine) {
    prefetch_line(row + column);
  }
}

template <bool centered, bool adds, int width, typename T>
__device__ void write_dx(const Pass<T>& pass, std::int64_t row, float2 kept) {
  const std::int64_t start = row * pass.columns;
  float mean = 0.0f;   // mean of g = dy * gamma
  float slope = 0.0f;  // mean of g * n, where n is the normalized x
  float slopes[width];
  float values[width];
  float scales[width];
  for (std::int64_t column = threadIdx.x * width; column < pass.columns; column += kBackwardThreads * width) {
    load(slopes, pass.dy + start + column);
    load(values, pass.x + start + column);
    load(scales, pass.gamma + column);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      mean += slopes[i] * scales[i];
      slope += slopes[i] * scales[i] * ((values[i] - kept.x) * kept.y);
    }
  }
  const float share = 1.0f / static_cast<float>(pass.columns);
  slope = reduce_block(slope, 0.0f, Add()) * share;
  mean = centered ? reduce_block(mean, 0.0f, Add()) * share : 0.0f;
  for (std::int64_t column = threadIdx.x * width; column < pass.columns; column += kBackwardThreads * width) {
    load(slopes, pass.dy + start + column);
    load(values, pass.x + start + column);
    load(scales, pass.gamma + column);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      values[i] = (slopes[i] * scales[i] - mean - (values[i] - kept.x) * kept.y * slope) * kept.y;
    }
    if constexpr (adds) {
      load(slopes, pass.added + start + column);
      // __fadd_rn keeps the compiler from fusing this into a multiply-add. So in f32, the result equals that
      // of the operation `add`.
#pragma unroll
      for (int i = 0; i < width; ++i) values[i] = __fadd_rn(values[i], slopes[i]);
    }
    store(pass.dx + start + column, values);
  }
}

/// ColumnSums are a thread's column sums. In each step the thread sums `width` columns, from first + (step *
/// kBackwardThreads + thread) * width on.
template <int steps, int width>
struct ColumnSums {
  float values[steps][width] = {};

  /// Calls f(column, values) for each vector that lies before `last`.
  template <typename F>
  __device__ void each(std::int64_t first, std::int64_t last, F f) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const std::int64_t column = first + (std::int64_t{step} * kBackwardThreads + threadIdx.x) * width;
      if (column < last) f(column, values[step]);
    }
  }
};

template <bool centered, bool adds, int width, typename T>
__global__ void __launch_bounds__(kBackwardThreads, 2) norm_backward_kernel(Pass<T> pass) {
  using Columns = ColumnSums<kSteps<centered>, width>;
  Columns gammas;
  Columns betas;  // unused, and without cost, for rms_norm
  for (std::int64_t row = blockIdx.x; row < pass.rows; row += gridDim.x) {
    if (const std::int64_t next = row + gridDim.x; next < pass.rows) {
      prefetch_row(pass.dy + next * pass.columns, pass.columns);
      prefetch_row(pass.x + next * pass.columns, pass.columns);
      if (adds && pass.dx != nullptr) prefetch_row(pass.added + next * pass.columns, pass.columns);
    }
    const float2 kept = kept_of<centered>(pass.statistics, row);
    if (pass.dx != nullptr) write_dx<centered, adds, width>(pass, row, kept);
    const T* dy = pass.dy + row * pass.columns;
    const T* x = pass.x + row * pass.columns;
    if (pass.dgamma != nullptr) {
      gammas.each(pass.first, pass.last, [&](std::int64_t column, float(&sums)[width]) {
        float slopes[width];
        float values[width];
        load(slopes, dy + column);
        load(values, x + column);
#pragma unroll
        for (int i = 0; i < width; ++i) sums[i] += slopes[i] * ((values[i] - kept.x) * kept.y);
      });
    }
    if (!centered || pass.dbeta == nullptr) continue;
    betas.each(pass.first, pass.last, [&](std::int64_t column, float(&sums)[width]) {
      float slopes[width];
      load(slopes, dy + column);
#pragma unroll
      for (int i = 0; i < width; ++i) sums[i] += slopes[i];
    });
  }
  const std::int64_t part = blockIdx.x * pass.columns;
  const auto keep = [&](Columns& columns, float* parts) {
    if (parts == nullptr) return;
    columns.each(pass.first, pass.last,
                 [&](std::int64_t column, float(&sums)[width]) { store(parts + part + column, sums); });
  };
  keep(gammas, pass.dgamma);
  if (centered) keep(betas, pass.dbeta);
}

template <bool centered>
void norm_backward(const CudaTarget& target, const char* operation, Matrix dx, Sums dgamma, Sums dbeta,
                   ConstMatrix dy, ConstMatrix x, ConstMatrix gamma, ConstSums statistics,
                   ConstMatrix added) {
  if (x.size() == 0) return;
  const std::int64_t blocks = std::min(x.rows, kBlocks);
  const StreamBuffer dgamma_parts(target, operation, blocks * dgamma.columns);
  const StreamBuffer dbeta_parts(target, operation, blocks * dbeta.columns);
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const bool vectors = fit_vectors<T>(x.columns, dx.data, dy.data, x.data, gamma.data, added.data);
    const auto kernel = added.data != nullptr
                            ? (vectors ? norm_backward_kernel<centered, true, kVector<T>, T>
                                       : norm_backward_kernel<centered, true, 1, T>)
                            : (vectors ? norm_backward_kernel<centered, false, kVector<T>, T>
                                       : norm_backward_kernel<centered, false, 1, T>);
    Pass<T> pass{values_of<T>(dx),
                 dgamma_parts.data(),
                 dbeta_parts.data(),
                 values_of<T>(dy),
                 values_of<T>(x),
                 values_of<T>(gamma),
                 values_of(statistics),
                 values_of<T>(added),
                 x.rows,
                 x.columns,
                 0,
                 0};
    const std::int64_t most =
        kSteps<centered> * kBackwardThreads * (vectors ? kVector<T> : 1);  // columns per pass
    while (pass.last < x.columns) {
      pass.first = pass.last;
      pass.last = std::min(x.columns, pass.first + most);
      if (pass.dx == nullptr && dgamma.columns == 0 && dbeta.columns == 0) break;
      launch(target, operation, kernel, static_cast<unsigned>(blocks), kBackwardThreads, 0, pass);
      pass.dx = nullptr;  // only the first pass writes dx
    }
  });
  if (dgamma.columns > 0)
    add_partial_sums(target, operation, values_of(dgamma), dgamma_parts.data(), blocks, x.columns);
  if (dbeta.columns > 0)
    add_partial_sums(target, operation, values_of(dbeta), dbeta_parts.data(), blocks, x.columns);
}

void layer_norm_backward(const CudaTarget& target, Matrix dx, Sums dgamma, Sums dbeta, ConstMatrix dy,
                         ConstMatrix x, ConstMatrix gamma, ConstSums statistics, ConstMatrix added) {
  norm_backward<true>(target, "layer_norm_backward", dx, dgamma, dbeta, dy, x, gamma, statistics, added);
}

void rms_norm_backward(const CudaTarget& target, Matrix dx, Sums dgamma, ConstMatrix dy, ConstMatrix x,
                       ConstMatrix gamma, ConstSums statistics, ConstMatrix added) {
  norm_backward<false>(target, "rms_norm_backward", dx, dgamma, Sums(), dy, x, gamma, statistics, added);
}

}  // namespace

void set_norms(Kernels& kernels, const CudaTarget& target) {
  kernels.layer_norm.set<layer_norm>(target);
  kernels.layer_norm_backward.set<layer_norm_backward>(target);
  kernels.rms_norm.set<rms_norm>(target);
  kernels.rms_norm_backward.set<rms_norm_backward>(target);
}

}  // namespace dflop::cuda
