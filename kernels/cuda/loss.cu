// In the kernels of cross entropy, one block processes one row of logits.
#include <cmath>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/themes.hpp"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace {

constexpr int kLossThreads = 512;

// Columns of the parts:
constexpr int kLargest = 0;
constexpr int kSum = 1;
constexpr int kTarget = 2;
constexpr int kParts = 3;

/// Exponentials hold the largest of some logits and the sum of exp(logit - largest), updated in one pass over
/// the logits.
struct Exponentials {
  float largest = -INFINITY;
  float sum = 0.0f;

  template <int width>
  __device__ void add(const float (&values)[width]) {
    float most = largest;
#pragma unroll
    for (const float value : values) most = fmaxf(most, value);
    if (most == -INFINITY) return;  // -inf - -inf would be NaN
    sum *= __expf(largest - most);
#pragma unroll
    for (const float value : values) sum += __expf(value - most);
    largest = most;
  }
};

template <int width, typename T>
__global__ void __launch_bounds__(kLossThreads)
    parts_kernel(float* parts, const T* logits, const std::int32_t* targets, std::int64_t first,
                 std::int64_t columns) {
  const std::int64_t row = blockIdx.x;
  const T* in = logits + row * columns;
  Exponentials mine;
  for (std::int64_t column = threadIdx.x * width; column < columns; column += kLossThreads * width) {
    float values[width];
    load(values, in + column);
    mine.add(values);
  }
  const float largest = reduce_block(mine.largest, -INFINITY, Larger());
  const float share = mine.sum == 0.0f ? 0.0f : mine.sum * expf(mine.largest - largest);
  const float sum = reduce_block(share, 0.0f, Add());
  if (threadIdx.x != 0) return;
  const std::int64_t target = targets[row] - first;
  parts[kParts * row + kLargest] = largest;
  parts[kParts * row + kSum] = sum;
  parts[kParts * row + kTarget] = target >= 0 && target < columns ? to_float(in[target]) : 0.0f;
}

__global__ void merge_kernel(float* merged, const float* parts, std::int64_t rows, int ranks) {
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float largest = -INFINITY;
  for (int rank = 0; rank < ranks; ++rank) {
    largest = fmaxf(largest, parts[kParts * (rank * rows + row) + kLargest]);
  }
  float sum = 0.0f;
  float target = 0.0f;
  for (int rank = 0; rank < ranks; ++rank) {
    const float* part = parts + kParts * (rank * rows + row);
    sum += part[kSum] * expf(part[kLargest] - largest);
    target += part[kTarget];
  }
  merged[kParts * row + kLargest] = largest;
  merged[kParts * row + kSum] = sum;
  merged[kParts * row + kTarget] = target;
}

template <int width, typename T>
__global__ void __launch_bounds__(kLossThreads)
    backward_kernel(T* logits, const float* merged, const std::int32_t* targets, std::int64_t first,
                    std::int64_t columns, float weight) {
  const std::int64_t row = blockIdx.x;
  T* values_of_row = logits + row * columns;
  const bool trained = targets[row] >= 0;
  const std::int64_t target = targets[row] - first;
  const float largest = merged[kParts * row + kLargest];
  const float factor = weight / merged[kParts * row + kSum];
  for (std::int64_t column = threadIdx.x * width; column < columns; column += kLossThreads * width) {
    float values[width] = {};
    if (trained) {
      load(values, values_of_row + column);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        values[i] = __expf(values[i] - largest) * factor - (column + i == target ? weight : 0.0f);
      }
    }
    store(values_of_row + column, values);
  }
}

/// Adds weight * (sum over rows with a target of log(sum) + largest - target's logit) to loss. One block sums
/// all rows, so that the order of the sum is fixed.
__global__ void __launch_bounds__(kLossThreads)
    loss_kernel(float* loss, const float* merged, const std::int32_t* targets, std::int64_t rows,
                double weight) {
  double sum = 0.0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kLossThreads) {
    const float* part = merged + kParts * row;
    if (targets[row] >= 0) sum += logf(part[kSum]) + (part[kLargest] - part[kTarget]);
  }
  const double total = reduce_block(sum, 0.0, Add());
  if (threadIdx.x == 0) loss[0] += static_cast<float>(weight * total);
}

void cross_entropy_parts(const CudaTarget& target, Sums parts, ConstMatrix logits, Indices targets,
                         std::int64_t first) {
  if (logits.rows == 0) return;
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const bool vectors = fit_vectors<T>(logits.columns, logits.data);
    const auto kernel = vectors ? parts_kernel<kVector<T>, T> : parts_kernel<1, T>;
    launch(target, "cross_entropy_parts", kernel, grid_size("cross_entropy_parts", logits.rows), kLossThreads,
           0, values_of(parts), values_of<T>(logits), targets.device, first, logits.columns);
  });
}

void cross_entropy_merge(const CudaTarget& target, Sums merged, ConstSums parts, int ranks) {
  if (merged.rows == 0) return;
  constexpr unsigned kRowThreads = 128;
  launch(target, "cross_entropy_merge", merge_kernel,
         grid_size("cross_entropy_merge", pieces(merged.rows, kRowThreads)), kRowThreads, 0,
         values_of(merged), values_of(parts), merged.rows, ranks);
}

void cross_entropy_backward(const CudaTarget& target, Matrix logits, Sums loss, ConstSums merged,
                            Indices targets, std::int64_t first, double weight) {
  if (logits.rows == 0) return;
  constexpr const char* kOperation = "cross_entropy_backward";
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const bool vectors = fit_vectors<T>(logits.columns, logits.data);
    const auto kernel = vectors ? backward_kernel<kVector<T>, T> : backward_kernel<1, T>;
    launch(target, kOperation, kernel, grid_size(kOperation, logits.rows), kLossThreads, 0,
           values_of<T>(logits), values_of(merged), targets.device, first, logits.columns,
           static_cast<float>(weight));
  });
  launch(target, kOperation, loss_kernel, 1, kLossThreads, 0, values_of(loss), values_of(merged),
         targets.device, logits.rows, weight);
}

}  // namespace

void set_loss(Kernels& kernels, const CudaTarget& target) {
  kernels.cross_entropy_parts.set<cross_entropy_parts>(target);
  kernels.cross_entropy_merge.set<cross_entropy_merge>(target);
  kernels.cross_entropy_backward.set<cross_entropy_backward>(target);
}

}  // namespace dflop::cuda
