// This attention serves f32 and the head widths that the tensor-core kernels do not support. One warp
// computes each row and head, in steps of 32 rows of its sequence. In a step, each lane first computes the
// scalar products with one of these rows. Then all lanes add the weighted rows, each lane in its own columns.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {
namespace attention_plain {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;

/// A WarpRow is the row and head of a warp. Warps are numbered by row, then head. Each sequence has one extra
/// row number at its end, for which there is no row.
struct WarpRow {
  int head;
  SequenceTile row;  ///< a tile of one row

  __device__ WarpRow(const AttentionLayout& layout, int heads) {
    const std::int64_t number = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
    head = static_cast<int>(number % heads);
    row = find_tile(layout.offsets, layout.sequences, number / heads, 1, false);
  }
  __device__ bool exists() const { return row.first < row.length; }
  __device__ std::int64_t place() const { return row.begin + row.first; }
};

/// Returns line `which` of the warp's shared memory. A line has `width` values.
__device__ float* line(float* memory, int lines, int which, int width) {
  return memory + (static_cast<int>(threadIdx.x) / kWarp * lines + which) * width;
}

/// Calls f(column) for the lane's columns of a head.
template <typename F>
__device__ void for_columns(const AttentionLayout& layout, F f) {
  for (int column = static_cast<int>(threadIdx.x) % kWarp; column < layout.head_dim; column += kWarp)
    f(column);
}

template <typename A, typename B>
__device__ float product(const A* a, const B* b, const AttentionLayout& layout) {
  float sum = 0.0f;
  for (int i = 0; i < layout.head_dim; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

/// For each of the lane's columns, adds the sum over rows of weights[i] * (value of row i) to sum[column].
/// The `count` rows are `stride` values apart.
template <typename T>
__device__ void add_rows(float* sum, const float* weights, const T* rows, std::int64_t stride, int count,
                         const AttentionLayout& layout) {
  for_columns(layout, [&](int column) {
    float value = sum[column];
    for (int i = 0; i < count; ++i) value += weights[i] * to_float(rows[i * stride + column]);
    sum[column] = value;
  });
}

__device__ int smaller(int a, int b) {
  return a < b ? a : b;
}

// A line of shared memory has head_dim values, but at least kWarp, as one line holds the weights of 32 rows.
constexpr int kForwardLines = 3;
template <typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(T* out, float* statistics, const T* qkv, AttentionLayout layout, int width) {
  extern __shared__ float plain_memory[];
  const WarpRow warp(layout, layout.heads);
  if (!warp.exists()) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t stride = layout.qkv_columns();
  const int kv_head = layout.kv_head_of(warp.head);
  const T* keys = qkv + warp.row.begin * stride + layout.key(kv_head);
  const T* values = qkv + warp.row.begin * stride + layout.value(kv_head);
  const T* query = qkv + warp.place() * stride + layout.query(warp.head);
  float* own = line(plain_memory, kForwardLines, 0, width);
  float* sums = line(plain_memory, kForwardLines, 1, width);
  float* weights = line(plain_memory, kForwardLines, 2, width);
  for_columns(layout, [&](int column) {
    own[column] = to_float(query[column]) * layout.scale;
    sums[column] = 0.0f;
  });
  const int visible = layout.causal ? warp.row.first + 1 : warp.row.length;
  float largest = -INFINITY;
  float total = 0.0f;
  for (int key = 0; key < visible; key += kWarp) {
    __syncwarp();  // the lines are written, and no lane still reads the previous weights
    const bool sees = key + lane < visible;
    const float score = sees ? product(own, keys + (key + lane) * stride, layout) : -INFINITY;
    const float most = reduce_warp(fmaxf(score, largest), Larger());
    const float shrink = expf(largest - most);
    weights[lane] = expf(score - most);
    total = total * shrink + reduce_warp(weights[lane], Add());
    largest = most;
    __syncwarp();
    for_columns(layout, [&](int column) { sums[column] *= shrink; });
    add_rows(sums, weights, values + key * stride, stride, smaller(kWarp, visible - key), layout);
  }
  T* to = out + warp.place() * layout.out_columns() + layout.query(warp.head);
  for_columns(layout, [&](int column) { to[column] = from_float<T>(sums[column] / total); });
  if (lane == 0) statistics[warp.place() * layout.heads + warp.head] = largest + logf(total);
}

/// Gradients hold the inputs of the backward, and dqkv, which it writes.
template <typename T>
struct Gradients {
  T* dqkv;
  const T* dout;
  const T* out;
  const float* log_sums;
  const T* qkv;
};

constexpr int kQueryLines = 4;
template <typename T>
__global__ void __launch_bounds__(kThreads)
    queries_kernel(Gradients<T> from, AttentionLayout layout, int width) {
  extern __shared__ float plain_memory[];
  const WarpRow warp(layout, layout.heads);
  if (!warp.exists()) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t stride = layout.qkv_columns();
  const int kv_head = layout.kv_head_of(warp.head);
  const T* keys = from.qkv + warp.row.begin * stride + layout.key(kv_head);
  const T* values = from.qkv + warp.row.begin * stride + layout.value(kv_head);
  const std::int64_t query_place = warp.place() * stride + layout.query(warp.head);
  const std::int64_t out_place = warp.place() * layout.out_columns() + layout.query(warp.head);
  float* own = line(plain_memory, kQueryLines, 0, width);
  float* dout = line(plain_memory, kQueryLines, 1, width);
  float* sums = line(plain_memory, kQueryLines, 2, width);
  float* weights = line(plain_memory, kQueryLines, 3, width);
  float delta = 0.0f;
  for_columns(layout, [&](int column) {
    own[column] = to_float(from.qkv[query_place + column]) * layout.scale;
    dout[column] = to_float(from.dout[out_place + column]);
    sums[column] = 0.0f;
    delta += dout[column] * to_float(from.out[out_place + column]);
  });
  delta = reduce_warp(delta, Add());
  const float log_sum = from.log_sums[warp.place() * layout.heads + warp.head];
  const int visible = layout.causal ? warp.row.first + 1 : warp.row.length;
  for (int key = 0; key < visible; key += kWarp) {
    __syncwarp();  // the lines are written, and no lane still reads the previous weights
    const std::int64_t place = (key + lane) * stride;
    weights[lane] = 0.0f;
    if (key + lane < visible) {
      const float p = expf(product(own, keys + place, layout) - log_sum);
      weights[lane] = p * (product(dout, values + place, layout) - delta);
    }
    __syncwarp();
    add_rows(sums, weights, keys + key * stride, stride, smaller(kWarp, visible - key), layout);
  }
  for_columns(layout, [&](int column) {
    from.dqkv[query_place + column] = from_float<T>(sums[column] * layout.scale);
  });
}

constexpr int kKeyLines = 6;
template <typename T>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(Gradients<T> from, AttentionLayout layout, int width) {
  extern __shared__ float plain_memory[];
  const WarpRow warp(layout, layout.kv_heads);
  if (!warp.exists()) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t stride = layout.qkv_columns();
  const std::int64_t key_place = warp.place() * stride + layout.key(warp.head);
  const std::int64_t value_place = warp.place() * stride + layout.value(warp.head);
  float* key = line(plain_memory, kKeyLines, 0, width);
  float* value = line(plain_memory, kKeyLines, 1, width);
  float* dkey = line(plain_memory, kKeyLines, 2, width);
  float* dvalue = line(plain_memory, kKeyLines, 3, width);
  float* probabilities = line(plain_memory, kKeyLines, 4, width);
  float* slopes = line(plain_memory, kKeyLines, 5, width);
  for_columns(layout, [&](int column) {
    key[column] = to_float(from.qkv[key_place + column]) * layout.scale;
    value[column] = to_float(from.qkv[value_place + column]);
    dkey[column] = 0.0f;
    dvalue[column] = 0.0f;
  });
  const int group = layout.heads / layout.kv_heads;
  for (int head = warp.head * group; head < (warp.head + 1) * group; ++head) {
    const T* queries = from.qkv + warp.row.begin * stride + layout.query(head);
    const std::int64_t out_start = warp.row.begin * layout.out_columns() + layout.query(head);
    for (int query = layout.causal ? warp.row.first : 0; query < warp.row.length; query += kWarp) {
      __syncwarp();  // the lines are written, and no lane still reads the previous weights
      const std::int64_t place = out_start + (query + lane) * layout.out_columns();
      probabilities[lane] = 0.0f;
      slopes[lane] = 0.0f;
      if (query + lane < warp.row.length) {
        const float log_sum = from.log_sums[(warp.row.begin + query + lane) * layout.heads + head];
        const float delta = product(from.dout + place, from.out + place, layout);
        const float p = expf(product(key, queries + (query + lane) * stride, layout) - log_sum);
        probabilities[lane] = p;
        slopes[lane] = p * (product(value, from.dout + place, layout) - delta);
      }
      __syncwarp();
      const int count = smaller(kWarp, warp.row.length - query);
      add_rows(dkey, slopes, queries + query * stride, stride, count, layout);
      add_rows(dvalue, probabilities, from.dout + out_start + query * layout.out_columns(),
               layout.out_columns(), count, layout);
    }
  }
  for_columns(layout, [&](int column) {
    from.dqkv[key_place + column] = from_float<T>(dkey[column] * layout.scale);
    from.dqkv[value_place + column] = from_float<T>(dvalue[column]);
  });
}

/// Starts one warp for each row and head. The kernel's last argument is the width of a line of shared memory.
template <typename... Parameters, typename... Arguments>
void launch_warps(const CudaTarget& target, const char* operation, const AttentionLayout& layout, int heads,
                  int lines, void (*kernel)(Parameters...), Arguments... arguments) {
  constexpr int kMaxHeadDim = 1024;
  if (layout.head_dim > kMaxHeadDim) {
    throw Error(ErrorKind::internal,
                "heads are " + std::to_string(layout.head_dim) + " wide, expected at most " +
                    std::to_string(kMaxHeadDim),
                operation);
  }
  const int width = layout.head_dim > kWarp ? layout.head_dim : kWarp;
  const std::int64_t warps = tile_numbers(layout.rows, layout.sequences, 1) * heads;
  const auto shared = static_cast<std::size_t>(kWarps * lines * width) * sizeof(float);
  launch(target, operation, kernel, grid_size(operation, pieces(warps, kWarps)), kThreads, shared,
         arguments..., layout, width);
}

}  // namespace attention_plain

void plain_attention(const CudaTarget& target, const AttentionLayout& layout, Matrix out, Sums statistics,
                     ConstMatrix qkv) {
  using namespace attention_plain;
  with_type(target, [&](auto type) {
    using T = decltype(type);
    launch_warps(target, "attention", layout, layout.heads, kForwardLines, forward_kernel<T>,
                 values_of<T>(out), values_of(statistics), values_of<T>(qkv));
  });
}

void plain_attention_backward(const CudaTarget& target, const AttentionLayout& layout, Matrix dqkv,
                              ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv) {
  using namespace attention_plain;
  with_type(target, [&](auto type) {
    using T = decltype(type);
    const Gradients<T> gradients{values_of<T>(dqkv), values_of<T>(dout), values_of<T>(out),
                                 values_of(statistics), values_of<T>(qkv)};
    launch_warps(target, "attention_backward", layout, layout.heads, kQueryLines, queries_kernel<T>,
                 gradients);
    launch_warps(target, "attention_backward", layout, layout.kv_heads, kKeyLines, keys_kernel<T>, gradients);
  });
}

}  // namespace dflop::cuda
