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
constexpr std::size_t kQuerySharedBytes = (2 * kQueries + 4 * kKeysAtOnce) * dim * sizeof(bf16);

// The pass over keys: 8 warps of 16 keys, queries in 64s.
constexpr int kKeyThreads = 8 * kWarp;
constexpr int kKeys = 128;
constexpr int kQueriesAtOnce = 64;
template <int dim>
constexpr std::size_t kKeySharedBytes = (2 * kKeys + 4 * kQueriesAtOnce) * dim * sizeof(bf16) +
                                        4 * kQueriesAtOnce * sizeof(float);

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

/// Scores of queries by keys, and slopes dout v^T, become ds. `query` is the warp's first.
__device__ void query_slopes(Fragments<kQueryTiles, kKeysAtOnce / 8>& slopes,
                             const Fragments<kQueryTiles, kKeysAtOnce / 8>& scores, const QueryRows& rows,
                             int query, int key, int length, const AttentionLayout& layout) {
#pragma unroll
  for (int i = 0; i < kQueryTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + fragment_row(i, half);
      const int visible = layout.causal && row + 1 < length ? row + 1 : length;
#pragma unroll
      for (int j = 0; j < kKeysAtOnce / 8; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float score = scores[i][j][2 * half + c] * (layout.scale * kLog2E);
          const float p = exp2f(score - rows.log_sum[i][half]);
          float& slope = slopes[i][j][2 * half + c];
          slope = key + fragment_column(j) + c < visible ? p * (slope - rows.delta[i][half]) : 0.0f;
        }
      }
    }
  }
}

template <int dim>
__global__ void __launch_bounds__(kQueryThreads) queries_kernel(Gradients gradients, AttentionLayout layout) {
  extern __shared__ __align__(16) bf16 backward_memory[];
  const SequenceTile tile = find_tile(layout.offsets, layout.sequences, blockIdx.x, kQueries, layout.causal);
  if (tile.first >= tile.length) return;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = layout.kv_head_of(head);
  const Tile<dim> queries{backward_memory};
  const Tile<dim> douts{backward_memory + kQueries * dim};
  const std::int64_t stride = layout.qkv_columns();
  const bf16* rows = gradients.qkv + tile.begin * stride;
  // Of the tile after this one keys and values are copied while this one is computed with.
  const auto keys_of = [&](int key) {
    return Tile<dim>{backward_memory + (2 * kQueries + key / kKeysAtOnce % 2 * 2 * kKeysAtOnce) * dim};
  };
  const auto values_of_keys = [&](int key) { return Tile<dim>{keys_of(key).data + kKeysAtOnce * dim}; };
  const auto copy = [&](int key) {
    const bf16* from = rows + key * stride;
    keys_of(key).template copy<kKeysAtOnce, kQueryThreads>(from + layout.key(kv_head), stride,
                                                           tile.length - key, layout.head_dim);
    values_of_keys(key).template copy<kKeysAtOnce, kQueryThreads>(from + layout.value(kv_head), stride,
                                                                  tile.length - key, layout.head_dim);
  };
  const int count = tile.length - tile.first;
  queries.template copy<kQueries, kQueryThreads>(rows + tile.first * stride + layout.query(head), stride,
                                                 count, layout.head_dim);
  douts.template copy<kQueries, kQueryThreads>(
      gradients.dout + (tile.begin + tile.first) * layout.out_columns() + layout.query(head),
      layout.out_columns(), count, layout.head_dim);
  copy(0);

  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kQueryTiles * 16;
  const QueryRows known = query_rows(gradients, tile, warp_row, head, layout);
  Fragments<kQueryTiles, dim / 8> sums;
  clear<kQueryTiles, dim / 8>(sums);
  const int seen = layout.causal && tile.first + kQueries < tile.length ? tile.first + kQueries : tile.length;
  for (int key = 0; key < seen; key += kKeysAtOnce) {
    wait_copies();
    __syncthreads();  // this tile is there, and no one needs the one before
    if (key + kKeysAtOnce < seen) copy(key + kKeysAtOnce);
    Fragments<kQueryTiles, kKeysAtOnce / 8> scores;
    Fragments<kQueryTiles, kKeysAtOnce / 8> slopes;
    clear<kQueryTiles, kKeysAtOnce / 8>(scores);
    clear<kQueryTiles, kKeysAtOnce / 8>(slopes);
    add_row_products<kQueryTiles, kKeysAtOnce / 8, dim>(scores, queries, warp_row, keys_of(key));
    add_row_products<kQueryTiles, kKeysAtOnce / 8, dim>(slopes, douts, warp_row, values_of_keys(key));
    query_slopes(slopes, scores, known, tile.first + warp_row, key, tile.length, layout);
    add_products<kQueryTiles, kKeysAtOnce / 8, dim>(sums, slopes, keys_of(key));
  }
#pragma unroll
  for (int i = 0; i < kQueryTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.first + warp_row + fragment_row(i, half);
      if (query >= tile.length) continue;
      bf16* to = gradients.dqkv + (tile.begin + query) * stride + layout.query(head);
      store_row(to, layout.head_dim, sums, i, half, layout.scale);
    }
  }
}

/// Scores of keys by queries become probabilities. Lines of log sums belong to columns here.
__device__ void key_probabilities(Fragments<1, kQueriesAtOnce / 8>& scores, const float* log_sums, int key,
                                  int query, const AttentionLayout& layout) {
#pragma unroll
  for (int j = 0; j < kQueriesAtOnce / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = fragment_column(j) + c;
      const float log_sum = log_sums[column] * kLog2E;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool visible = !layout.causal || key + fragment_row(0, half) <= query + column;
        float& score = scores[0][j][2 * half + c];
        score = visible ? exp2f(score * (layout.scale * kLog2E) - log_sum) : 0.0f;
      }
    }
  }
}

/// slopes = p * (slopes - delta of the column).
__device__ void key_slopes(Fragments<1, kQueriesAtOnce / 8>& slopes,
                           const Fragments<1, kQueriesAtOnce / 8>& probabilities, const float* delta) {
#pragma unroll
  for (int j = 0; j < kQueriesAtOnce / 8; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float mean = delta[fragment_column(j) + c];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& slope = slopes[0][j][2 * half + c];
        slope = probabilities[0][j][2 * half + c] * (slope - mean);
      }
    }
  }
}

/// One of two buffers: a tile of queries of one head with what belongs to them.
template <int dim>
struct QueryBuffer {
  Tile<dim> queries;
  Tile<dim> douts;
  float* log_sums;
  float* delta;

  __device__ QueryBuffer(bf16* tiles, float* lines, int which)
      : queries{tiles + which * 2 * kQueriesAtOnce * dim},
        douts{queries.data + kQueriesAtOnce * dim},
        log_sums(lines + which * 2 * kQueriesAtOnce),
        delta(log_sums + kQueriesAtOnce) {}

  /// Begins to copy the queries from `first` on. What lies beyond the sequence becomes zeros, which add
  /// nothing: probabilities of 1 meet a dout of 0, and slopes are 0.
  __device__ void copy(const Gradients& from, const SequenceTile& tile, int first, int head,
                       const AttentionLayout& layout) const {
    const std::int64_t row = tile.begin + first;
    const int count = tile.length - first;
    queries.template copy<kQueriesAtOnce, kKeyThreads>(
        from.qkv + row * layout.qkv_columns() + layout.query(head), layout.qkv_columns(), count,
        layout.head_dim);
    douts.template copy<kQueriesAtOnce, kKeyThreads>(
        from.dout + row * layout.out_columns() + layout.query(head), layout.out_columns(), count,
        layout.head_dim);
    const int line = static_cast<int>(threadIdx.x);
    if (line >= kQueriesAtOnce) return;
    const std::int64_t place = (line < count ? row + line : row) * layout.heads + head;
    copy_4(log_sums + line, from.log_sums + place, line < count);
    copy_4(delta + line, from.delta + place, line < count);
  }
};

template <int dim>
__global__ void __launch_bounds__(kKeyThreads) keys_kernel(Gradients gradients, AttentionLayout layout) {
  extern __shared__ __align__(16) bf16 backward_memory[];
  const SequenceTile tile = find_tile(layout.offsets, layout.sequences, blockIdx.x, kKeys, false);
  if (tile.first >= tile.length) return;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = layout.heads / layout.kv_heads;
  const Tile<dim> keys{backward_memory};
  const Tile<dim> values{backward_memory + kKeys * dim};
  bf16* buffers = backward_memory + 2 * kKeys * dim;
  float* lines = reinterpret_cast<float*>(buffers + 4 * kQueriesAtOnce * dim);
  const std::int64_t stride = layout.qkv_columns();
  const bf16* rows = gradients.qkv + (tile.begin + tile.first) * stride;
  const int count = tile.length - tile.first;
  keys.template copy<kKeys, kKeyThreads>(rows + layout.key(kv_head), stride, count, layout.head_dim);
  values.template copy<kKeys, kKeyThreads>(rows + layout.value(kv_head), stride, count, layout.head_dim);

  // All tiles of queries that see these keys, head after head.
  const int first_query = layout.causal ? tile.first / kQueriesAtOnce * kQueriesAtOnce : 0;
  const int tiles_of_head = (tile.length - first_query + kQueriesAtOnce - 1) / kQueriesAtOnce;
  const int steps = group * tiles_of_head;
  const auto query_of = [&](int step) { return first_query + step % tiles_of_head * kQueriesAtOnce; };
  const auto copy = [&](int step) {
    QueryBuffer<dim>(buffers, lines, step % 2)
        .copy(gradients, tile, query_of(step), kv_head * group + step / tiles_of_head, layout);
  };
  copy(0);

  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16;
  Fragments<1, dim / 8> dkeys;
  Fragments<1, dim / 8> dvalues;
  clear<1, dim / 8>(dkeys);
  clear<1, dim / 8>(dvalues);
  for (int step = 0; step < steps; ++step) {
    wait_copies();
    __syncthreads();  // this tile is there, and no one needs the one before
    if (step + 1 < steps) copy(step + 1);
    const QueryBuffer<dim> buffer(buffers, lines, step % 2);
    Fragments<1, kQueriesAtOnce / 8> scores;
    clear<1, kQueriesAtOnce / 8>(scores);
    add_row_products<1, kQueriesAtOnce / 8, dim>(scores, keys, warp_row, buffer.queries);
    key_probabilities(scores, buffer.log_sums, tile.first + warp_row, query_of(step), layout);
    add_products<1, kQueriesAtOnce / 8, dim>(dvalues, scores, buffer.douts);
    Fragments<1, kQueriesAtOnce / 8> slopes;
    clear<1, kQueriesAtOnce / 8>(slopes);
    add_row_products<1, kQueriesAtOnce / 8, dim>(slopes, values, warp_row, buffer.douts);
    key_slopes(slopes, scores, buffer.delta);
    add_products<1, kQueriesAtOnce / 8, dim>(dkeys, slopes, buffer.queries);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = tile.first + warp_row + fragment_row(0, half);
    if (key >= tile.length) continue;
    bf16* to = gradients.dqkv + (tile.begin + key) * stride;
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
  const bool narrow = layout.head_dim <= 64;
  const auto grid = [&](int tile_rows, int heads) {
    return dim3(grid_size(kOperation, tile_numbers(layout.rows, layout.sequences, tile_rows)),
                static_cast<unsigned>(heads));
  };
  launch(target, kOperation, narrow ? queries_kernel<64> : queries_kernel<128>, grid(kQueries, layout.heads),
         kQueryThreads, narrow ? kQuerySharedBytes<64> : kQuerySharedBytes<128>, gradients, layout);
  launch(target, kOperation, narrow ? keys_kernel<64> : keys_kernel<128>, grid(kKeys, layout.kv_heads),
         kKeyThreads, narrow ? kKeySharedBytes<64> : kKeySharedBytes<128>, gradients, layout);
}

}  // namespace dflop::cuda
