// FlashAttention-2 (Dao 2023, algorithm 2) in two passes, so that no two blocks add to one gradient and a run
// repeats to the bit. With p the probabilities, computed again from the statistics, and ds = p * (dout v^T -
// delta), where delta = sum of dout * out:
//   queries: a block has some queries of a head and goes over keys; dq = scale * ds k.
//   keys: a block has some keys of a key head and goes over the queries of its heads; dv = p^T dout,
//   dk = scale * ds^T q. It computes p^T and ds^T at once, so that both stay in registers.
// That is seven products where five would do with atomic additions.
#include <algorithm>

#include "kernels/cuda_attention.hpp"
#include "kernels/cuda_tiles.cuh"

namespace dflop::cuda {
namespace {

struct Gradients {
  bf16* dqkv;
  const bf16* dout;
  const float* log_sums;  ///< the statistics
  const float* delta;     ///< [rows, heads]
  const bf16* qkv;
};

// The pass over queries: 4 warps of 32 queries, keys in 32s.
constexpr int kQueryThreads = 4 * kWarp;
constexpr int kQueryTiles = 2;
constexpr int kQueries = 128;
constexpr int kKeysAtOnce = 32;
template <int dim>
constexpr std::size_t kQuerySharedBytes = (2 * kQueries + 4 * kKeysAtOnce) * Tile<dim>::kRowBytes;

// The pass over keys: 8 warps of 16 keys, queries in 64s or, where a block has little shared memory, 32s.
constexpr int kKeyThreads = 8 * kWarp;
constexpr int kKeys = 128;
template <int dim, int queries_at_once>
constexpr std::size_t kKeySharedBytes = (2 * kKeys + 4 * queries_at_once) * Tile<dim>::kRowBytes +
                                        4 * queries_at_once * sizeof(float);

/// delta[row, head] = sum of dout * out over the head; a warp each.
__global__ void delta_kernel(float* delta, const bf16* dout, const bf16* out, std::int64_t count,
                             int head_dim) {
  const std::int64_t head = std::int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (head >= count) return;  // a warp at a time
  float sum = 0.0f;
  for (int i = static_cast<int>(threadIdx.x) % kWarp * 2; i < head_dim; i += 2 * kWarp) {
    float a[2];
    float b[2];
    load(a, dout + head * head_dim + i);
    load(b, out + head * head_dim + i);
    sum += a[0] * b[0] + a[1] * b[1];
  }
  sum = reduce_warp(sum, Add());
  if (threadIdx.x % kWarp == 0) delta[head] = sum;
}

/// What a lane's queries of the first pass know: log of the sum in powers of two, and delta.
struct QueryRows {
  float log_sum[kQueryTiles][2];
  float delta[kQueryTiles][2];
};

__device__ QueryRows query_rows(const Gradients& from, const SequenceTile& tile, int warp_row, int head,
                                const AttentionLayout& layout) {
  QueryRows rows;
#pragma unroll
  for (int i = 0; i < kQueryTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.first + warp_row + fragment_row(i, half);
      const bool inside = query < tile.length;
      const std::int64_t place = (tile.begin + query) * layout.heads + head;
      rows.log_sum[i][half] = inside ? from.log_sums[place] * kLog2E : INFINITY;  // probabilities 0
      rows.delta[i][half] = inside ? from.delta[place] : 0.0f;
    }
  }
  return rows;
}

/// Slopes dout v^T become ds, given the scores of queries by keys, -inf where unseen.
__device__ void query_slopes(Fragments<kQueryTiles, kKeysAtOnce / 8>& slopes,
                             const Fragments<kQueryTiles, kKeysAtOnce / 8>& scores, const QueryRows& rows,
                             float scale) {
#pragma unroll
  for (int i = 0; i < kQueryTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kKeysAtOnce / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float p = power_of_two(scores[i][j][c] * scale - rows.log_sum[i][c / 2]);
        slopes[i][j][c] = p * (slopes[i][j][c] - rows.delta[i][c / 2]);
      }
    }
  }
}

template <int dim>
__global__ void __launch_bounds__(kQueryThreads, 2)
    queries_kernel(Gradients gradients, AttentionLayout layout) {
  extern __shared__ __align__(Tile<dim>::kAlignment) bf16 backward_memory[];
  const SequenceTile tile = find_tile(layout.offsets, layout.sequences, blockIdx.x, kQueries, layout.causal);
  if (tile.first >= tile.length) return;
  const int head = static_cast<int>(blockIdx.y);
  const Tile<dim> queries{shared_address(backward_memory)};
  const Tile<dim> douts = queries.after(kQueries);
  const int stride = layout.qkv_columns();
  const bf16* rows = gradients.qkv + tile.begin * stride;
  const bf16* keys_of_head = rows + layout.key(layout.kv_head_of(head));
  const std::int64_t to_values = layout.value(0) - layout.key(0);
  // Of the tile after this one keys and values are copied while this one is computed with.
  const auto keys_of = [&](int key) {
    return douts.after(kQueries + key / kKeysAtOnce % 2 * 2 * kKeysAtOnce);
  };
  const auto copy = [&](int key) {
    const bf16* from = keys_of_head + std::int64_t{key} * stride;
    const Tile<dim> keys = keys_of(key);
    const int count = tile.length - key;
    keys.template copy<kKeysAtOnce, kQueryThreads>(from, stride, count, layout.head_dim);
    keys.after(kKeysAtOnce)
        .template copy<kKeysAtOnce, kQueryThreads>(from + to_values, stride, count, layout.head_dim);
  };
  const int count = tile.length - tile.first;
  queries.template copy<kQueries, kQueryThreads>(
      rows + std::int64_t{tile.first} * stride + layout.query(head), stride, count, layout.head_dim);
  douts.template copy<kQueries, kQueryThreads>(
      gradients.dout + (tile.begin + tile.first) * layout.out_columns() + layout.query(head),
      layout.out_columns(), count, layout.head_dim);
  copy(0);

  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kQueryTiles * 16;
  const int query = tile.first + warp_row;  // the warp's first
  const QueryRows known = query_rows(gradients, tile, warp_row, head, layout);
  Fragments<kQueryTiles, dim / 8> sums;
  clear<kQueryTiles, dim / 8>(sums);
  const int seen = layout.causal && tile.first + kQueries < tile.length ? tile.first + kQueries : tile.length;
  for (int key = 0; key < seen; key += kKeysAtOnce) {
    wait_copies();
    __syncthreads();  // this tile is there, and no one needs the one before
    if (key + kKeysAtOnce < seen) copy(key + kKeysAtOnce);
    if (layout.causal && key >= query + kQueryTiles * 16) continue;  // none of the warp's queries sees it
    const Tile<dim> keys = keys_of(key);
    Fragments<kQueryTiles, kKeysAtOnce / 8> scores;
    Fragments<kQueryTiles, kKeysAtOnce / 8> slopes;
    clear<kQueryTiles, kKeysAtOnce / 8>(scores);
    clear<kQueryTiles, kKeysAtOnce / 8>(slopes);
    add_row_products<kQueryTiles, kKeysAtOnce / 8, dim>(scores, queries, warp_row, keys);
    add_row_products<kQueryTiles, kKeysAtOnce / 8, dim>(slopes, douts, warp_row, keys.after(kKeysAtOnce));
    if (key + kKeysAtOnce > tile.length || (layout.causal && key + kKeysAtOnce > query + 1)) {
      mask<kQueryTiles, kKeysAtOnce / 8>(scores, query, key, tile.length, layout.causal);
    }
    query_slopes(slopes, scores, known, layout.scale * kLog2E);
    add_products<kQueryTiles, kKeysAtOnce / 8, dim>(sums, slopes, keys);
  }
#pragma unroll
  for (int i = 0; i < kQueryTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + fragment_row(i, half);
      if (row >= tile.length) continue;
      bf16* to = gradients.dqkv + (tile.begin + row) * stride + layout.query(head);
      store_row(to, layout.head_dim, sums, i, half, layout.scale);
    }
  }
}

/// Scores of keys by queries become -inf where a query comes before the key. `key` is the warp's first.
template <int n>
__device__ void mask_queries(Fragments<1, n>& scores, int key, int query) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const bool hidden = query + fragment_column(j) + c % 2 < key + fragment_row(0, c / 2);
      if (hidden) scores[0][j][c] = -INFINITY;
    }
  }
}

/// Scores of keys by queries become probabilities; each column has its own log of the sum.
template <int n>
__device__ void key_probabilities(Fragments<1, n>& scores, const float* log_sums, float scale) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float log_sum = log_sums[fragment_column(j) + c % 2] * kLog2E;
      scores[0][j][c] = power_of_two(scores[0][j][c] * scale - log_sum);
    }
  }
}

/// slopes = p * (slopes - delta of the column).
template <int n>
__device__ void key_slopes(Fragments<1, n>& slopes, const Fragments<1, n>& probabilities,
                           const float* delta) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      slopes[0][j][c] = probabilities[0][j][c] * (slopes[0][j][c] - delta[fragment_column(j) + c % 2]);
    }
  }
}

/// The queries of one head that the pass over keys takes at once.
struct QueryTile {
  int head;
  int first;

  /// Those after these: the same head's, or the next head's from `start` on.
  __device__ QueryTile next(int at_once, int start, int length) const {
    if (first + at_once < length) return {head, first + at_once};
    return {head + 1, start};
  }
};

/// One of two buffers for `rows` queries, with what belongs to them.
template <int dim, int rows>
struct QueryBuffer {
  Tile<dim> queries;
  Tile<dim> douts;
  float* log_sums;
  float* delta;

  __device__ QueryBuffer(Tile<dim> tiles, float* lines, int which)
      : queries(tiles.after(which * 2 * rows)),
        douts(queries.after(rows)),
        log_sums(lines + which * 2 * rows),
        delta(log_sums + rows) {}

  /// Begins to copy. What lies beyond the sequence becomes zeros, which add nothing: probabilities of 1 meet
  /// a dout of 0, and slopes are 0.
  __device__ void copy(const Gradients& from, const SequenceTile& tile, const QueryTile& some,
                       const AttentionLayout& layout) const {
    const std::int64_t row = tile.begin + some.first;
    const int count = tile.length - some.first;
    queries.template copy<rows, kKeyThreads>(from.qkv + row * layout.qkv_columns() + layout.query(some.head),
                                             layout.qkv_columns(), count, layout.head_dim);
    douts.template copy<rows, kKeyThreads>(from.dout + row * layout.out_columns() + layout.query(some.head),
                                           layout.out_columns(), count, layout.head_dim);
    const int line = static_cast<int>(threadIdx.x);
    if (line >= rows) return;
    const std::int64_t place = (line < count ? row + line : row) * layout.heads + some.head;
    copy_4(shared_address(log_sums + line), from.log_sums + place, line < count);
    copy_4(shared_address(delta + line), from.delta + place, line < count);
  }
};

template <int dim, int queries_at_once>
__global__ void __launch_bounds__(kKeyThreads, 1) keys_kernel(Gradients gradients, AttentionLayout layout) {
  extern __shared__ __align__(Tile<dim>::kAlignment) bf16 backward_memory[];
  using Scores = Fragments<1, queries_at_once / 8>;
  const SequenceTile tile = find_tile(layout.offsets, layout.sequences, blockIdx.x, kKeys, false);
  if (tile.first >= tile.length) return;
  const int kv_head = static_cast<int>(blockIdx.y);
  const Tile<dim> keys{shared_address(backward_memory)};
  const Tile<dim> values = keys.after(kKeys);
  const int stride = layout.qkv_columns();
  const bf16* rows = gradients.qkv + (tile.begin + tile.first) * stride;
  const int count = tile.length - tile.first;
  keys.template copy<kKeys, kKeyThreads>(rows + layout.key(kv_head), stride, count, layout.head_dim);
  values.template copy<kKeys, kKeyThreads>(rows + layout.value(kv_head), stride, count, layout.head_dim);
  float* lines = reinterpret_cast<float*>(backward_memory + (2 * kKeys + 4 * queries_at_once) * dim);
  const auto buffer_of = [&](int which) {
    return QueryBuffer<dim, queries_at_once>(values.after(kKeys), lines, which);
  };

  // All tiles of queries that see these keys, head after head.
  static_assert(kKeys % queries_at_once == 0);
  const int start = layout.causal ? tile.first : 0;
  const int group = layout.heads / layout.kv_heads;
  const int last_head = (kv_head + 1) * group;
  QueryTile some{kv_head * group, start};
  buffer_of(0).copy(gradients, tile, some, layout);

  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  const int key = tile.first + warp_row;  // the warp's first
  Fragments<1, dim / 8> dkeys;
  Fragments<1, dim / 8> dvalues;
  clear<1, dim / 8>(dkeys);
  clear<1, dim / 8>(dvalues);
  for (int which = 0; some.head < last_head; which = 1 - which) {
    wait_copies();
    __syncthreads();  // this tile is there, and no one needs the one before
    const int query = some.first;
    some = some.next(queries_at_once, start, tile.length);
    if (some.head < last_head) buffer_of(1 - which).copy(gradients, tile, some, layout);
    if (layout.causal && query + queries_at_once <= key) continue;  // none of them sees the warp's keys
    const QueryBuffer<dim, queries_at_once> buffer = buffer_of(which);
    Scores scores;
    clear<1, queries_at_once / 8>(scores);
    add_row_products<1, queries_at_once / 8, dim>(scores, keys, warp_row, buffer.queries);
    if (layout.causal && query < key + 15) mask_queries(scores, key, query);
    key_probabilities(scores, buffer.log_sums, layout.scale * kLog2E);
    add_products<1, queries_at_once / 8, dim>(dvalues, scores, buffer.douts);
    Scores slopes;
    clear<1, queries_at_once / 8>(slopes);
    add_row_products<1, queries_at_once / 8, dim>(slopes, values, warp_row, buffer.douts);
    key_slopes(slopes, scores, buffer.delta);
    add_products<1, queries_at_once / 8, dim>(dkeys, slopes, buffer.queries);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = key + fragment_row(0, half);
    if (row >= tile.length) continue;
    bf16* to = gradients.dqkv + (tile.begin + row) * stride;
    store_row(to + layout.key(kv_head), layout.head_dim, dkeys, 0, half, layout.scale);
    store_row(to + layout.value(kv_head), layout.head_dim, dvalues, 0, half, 1.0f);
  }
}

}  // namespace

void tensor_attention_backward(const CudaTarget& target, const AttentionLayout& layout, Matrix dqkv,
                               ConstMatrix dout, ConstMatrix out, ConstSums statistics, ConstMatrix qkv) {
  constexpr const char* kOperation = "attention_backward";
  const std::int64_t count = layout.rows * layout.heads;
  const StreamBuffer delta(target, kOperation, count);
  constexpr int kDeltaThreads = 256;
  launch(target, kOperation, delta_kernel, grid_size(kOperation, pieces(count, kDeltaThreads / kWarp)),
         kDeltaThreads, 0, delta.data(), values_of<bf16>(dout), values_of<bf16>(out), count, layout.head_dim);

  const Gradients gradients{values_of<bf16>(dqkv), values_of<bf16>(dout), values_of(statistics), delta.data(),
                            values_of<bf16>(qkv)};
  const auto grid = [&](int tile_rows, int heads) {
    return dim3(grid_size(kOperation, tile_numbers(layout.rows, layout.sequences, tile_rows)),
                static_cast<unsigned>(heads));
  };
  const auto start = [&](auto kernel, dim3 blocks, int threads, std::size_t shared_bytes) {
    launch(target, kOperation, kernel, blocks, threads, shared_bytes, gradients, layout);
  };
  const dim3 keys = grid(kKeys, layout.kv_heads);
  const dim3 queries = grid(kQueries, layout.heads);
  if (layout.head_dim <= 64) {
    start(queries_kernel<64>, queries, kQueryThreads, kQuerySharedBytes<64>);
    start(keys_kernel<64, 64>, keys, kKeyThreads, kKeySharedBytes<64, 64>);
  } else {
    start(queries_kernel<128>, queries, kQueryThreads, kQuerySharedBytes<128>);
    if (kKeySharedBytes<128, 64> <= target.shared_bytes) {
      start(keys_kernel<128, 64>, keys, kKeyThreads, kKeySharedBytes<128, 64>);
    } else {
      start(keys_kernel<128, 32>, keys, kKeyThreads, kKeySharedBytes<128, 32>);
    }
  }
}

}  // namespace dflop::cuda
