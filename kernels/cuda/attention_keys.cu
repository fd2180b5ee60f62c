// This is the backward pass over keys. A block holds 128 or 64 keys of a key head. It loops over the queries
// that see them, head after head, for all query heads of the key head or a part of them (KeyParts). Each of
// the block's 8 or 4 warps sums its part of the gradients of keys and values in registers, in one of two
// ways:
//   alone: a warp has 16 keys, with all queries and all columns of the head;
//   in pairs: two warps share 32 keys. Each computes the scores for half of the queries and the sums for half
//   of the columns. The sums need the scores of both halves, so the two warps exchange their scores through
//   shared memory. Each fragment read from shared memory then serves 4 products, and only 2 for a warp alone.
//   This matters because shared memory bandwidth limits this pass.
#include <algorithm>
#include <memory>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/tiles.cuh"

namespace dflop::cuda {
namespace attention_keys {

/// A Shape says how the work of a block is divided. `blocks` blocks should fit on a multiprocessor at once.
template <int head_dim, int queries_at_once, int warps_together, int warps, int blocks>
struct Shape {
  static constexpr int kWarps = warps;
  static constexpr int kThreads = warps * kWarp;
  static constexpr int kKeys = 16 * warps;
  static constexpr int kBlocks = blocks;
  static constexpr int dim = head_dim;
  static constexpr int queries = queries_at_once;
  static constexpr int together = warps_together;
  static constexpr int own_queries = queries / together;  ///< per warp
  static constexpr int own_columns = dim / together;      ///< per warp

  using Scores = Fragments<together, own_queries / 8>;
  using PackedScores = Packed<together, own_queries / 16>;
  using Sums = Fragments<together, own_columns / 8>;

  static constexpr int kTileValues = (2 * kKeys + 4 * queries) * Tile<dim>::kColumns;
  static constexpr int kLineValues = 4 * queries;  ///< log sums and deltas for two buffers
  /// A warp passes this many 16-byte vectors of packed probabilities to the other warp of its pair, and the
  /// same number of vectors of slopes.
  static constexpr int kWarpVectors = together * own_queries / 16 * kWarp;
  static constexpr int kBlockVectors = together == 1 ? 0 : kWarps * kWarpVectors;
  static constexpr std::size_t kSharedBytes =
      kTileValues * sizeof(bf16) + kLineValues * sizeof(float) + 2 * kBlockVectors * sizeof(uint4);
  static_assert(together <= 2 && kKeys % queries == 0);
};

/// KeyParts say how the query heads of a key head are divided among blocks. If there are few key heads and
/// few tiles, a single block for each key head and tile would leave most of the device idle.
struct KeyParts {
  int count = 1;
  int heads = 1;  ///< query heads per part; `count` parts make a group
  /// These are the sums of each part, [count, rows, 2 * kv_heads * head_dim], with dk and dv in the order of
  /// a row of dqkv. Null if there is only one part, which writes the gradients directly.
  float* sums = nullptr;
};

/// Divides the query heads of each key head into equal parts, enough to give the grid about kEnoughBlocks
/// blocks, two per multiprocessor of a large device. The number of parts does not depend on the device, so
/// all devices add in the same order.
KeyParts parts_of(const AttentionLayout& layout, std::int64_t tiles) {
  constexpr std::int64_t kEnoughBlocks = 256;
  const int group = layout.heads / layout.kv_heads;
  auto count =
      static_cast<int>(std::min<std::int64_t>(group, pieces(kEnoughBlocks, tiles * layout.kv_heads)));
  while (group % count != 0) --count;
  return {count, group / count};
}

/// AddKeyParts runs after the kernel and adds the parts of dk and dv in a fixed order.
struct AddKeyParts {
  bf16* dqkv;
  KeyParts parts;
  AttentionLayout layout;

  template <int width>
  __device__ void operator()(Width<width>, std::int64_t first) const {
    const std::int64_t columns = 2 * (layout.value(0) - layout.key(0));  // columns of dk and dv
    float sums[width] = {};
    for (int part = 0; part < parts.count; ++part) {
      float values[width];
      load(values, parts.sums + part * layout.rows * columns + first);
#pragma unroll
      for (int i = 0; i < width; ++i) sums[i] += values[i];
    }
    const std::int64_t column = layout.key(0) + first % columns;
#pragma unroll
    for (float& sum : sums) sum *= column < layout.value(0) ? layout.scale : 1.0f;
    store(dqkv + first / columns * layout.qkv_columns() + column, sums);
  }
};

/// Sets a score to -inf if its query comes before its key. Rows of `scores` are keys and columns are queries;
/// `key` and `query` are the first of them.
template <int m, int n>
__device__ void mask_queries(Fragments<m, n>& scores, int key, int query) {
#pragma unroll
  for (int i = 0; i < m; ++i) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const bool hidden = query + fragment_column(j) + c % 2 < key + fragment_row(i, c / 2);
        if (hidden) scores[i][j][c] = -INFINITY;
      }
    }
  }
}

/// Turns scores (keys by queries) into probabilities. Each column is a query and has its own log sum.
template <int m, int n>
__device__ void probabilities(Fragments<m, n>& scores, const float* log_sums, float scale) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float log_sum = log_sums[fragment_column(j) + c % 2] * kLog2E;
#pragma unroll
      for (int i = 0; i < m; ++i) scores[i][j][c] = power_of_two(scores[i][j][c] * scale - log_sum);
    }
  }
}

/// Sets slopes = p * (slopes - delta of the column).
template <int m, int n>
__device__ void key_slopes(Fragments<m, n>& slopes, const Fragments<m, n>& p, const float* delta) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float mean = delta[fragment_column(j) + c % 2];
#pragma unroll
      for (int i = 0; i < m; ++i) slopes[i][j][c] = p[i][j][c] * (slopes[i][j][c] - mean);
    }
  }
}

/// A QueryTile names the queries of one head that a block processes in one step.
struct QueryTile {
  int head;
  int first;

  /// Returns the next queries: of the same head, or else of the next head, from `start` on.
  __device__ QueryTile next(int at_once, int start, int length) const {
    if (first + at_once < length) return {head, first + at_once};
    return {head + 1, start};
  }
};

/// A QueryBuffer is one of two buffers in shared memory. It holds a tile of queries with their douts, log
/// sums and deltas.
template <int dim, int rows, int threads>
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

  /// Begins to copy a tile. Rows past the end of the sequence become zeros, which add nothing to the sums:
  /// their probabilities are 1 but their douts are 0, so their slopes are 0.
  __device__ void copy(const AttentionGradients& from, const SequenceTile& tile, const QueryTile& some,
                       const AttentionLayout& layout) const {
    const std::int64_t row = tile.begin + some.first;
    const int count = tile.length - some.first;
    queries.template copy<rows, threads, 2>(from.qkv + row * layout.qkv_columns() + layout.query(some.head),
                                            layout.qkv_columns(), count, layout.head_dim);
    douts.template copy<rows, threads, 2>(from.dout + row * layout.out_columns() + layout.query(some.head),
                                          layout.out_columns(), count, layout.head_dim);
    const int line = static_cast<int>(threadIdx.x);
    if (line >= rows) return;
    const std::int64_t place = (line < count ? row + line : row) * layout.heads + some.head;
    copy_4(shared_address(log_sums + line), from.log_sums + place, line < count);
    copy_4(shared_address(delta + line), from.delta + place, line < count);
  }
};

/// A WarpPart is one warp's part of the block's work.
template <typename S>
struct WarpPart {
  int warp = static_cast<int>(threadIdx.x) / kWarp;
  int place = warp % S::together;        ///< among the warps that share keys
  int keys = (warp - place) * 16;        ///< the first
  int queries = place * S::own_queries;  ///< the first, for scores
  int columns = place * S::own_columns;  ///< the first, for sums

  /// Adds scores * right to sums, over all queries. `scores` has only the warp's own queries. The two warps
  /// of a pair exchange their scores through `handed`, shared memory of S::kBlockVectors vectors. It must not
  /// be reused before the block's next barrier.
  __device__ void add_queries(typename S::Sums& sums, const typename S::Scores& scores, Tile<S::dim> right,
                              uint4* handed) const {
    typename S::PackedScores packed;
    pack_products<S::together, S::own_queries / 8>(packed, scores);
    if constexpr (S::together > 1) hand_over(handed + warp * S::kWarpVectors, packed);
    add_products<S::together, S::own_columns / 8, S::own_queries / 16>(sums, packed, right, queries, columns);
    if constexpr (S::together > 1) {
      wait_for_some(1 + warp / 2, 2 * kWarp);  // the other warp has written its scores
      take_over(packed, handed + (warp ^ 1) * S::kWarpVectors);
      add_products<S::together, S::own_columns / 8, S::own_queries / 16>(sums, packed, right,
                                                                         S::own_queries - queries, columns);
    }
  }

 private:
  static __device__ void hand_over(uint4* to, const typename S::PackedScores& packed) {
    to += threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < S::together; ++i) {
#pragma unroll
      for (int k = 0; k < S::own_queries / 16; ++k, to += kWarp) {
        *to = make_uint4(packed[i][k][0], packed[i][k][1], packed[i][k][2], packed[i][k][3]);
      }
    }
  }
  static __device__ void take_over(typename S::PackedScores& packed, const uint4* from) {
    from += threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < S::together; ++i) {
#pragma unroll
      for (int k = 0; k < S::own_queries / 16; ++k, from += kWarp) {
        packed[i][k][0] = from->x;
        packed[i][k][1] = from->y;
        packed[i][k][2] = from->z;
        packed[i][k][3] = from->w;
      }
    }
  }
};

/// Writes the warp's first `count` rows of sums, times `factor`. Rows are `stride` values apart.
template <typename T, int m, int n>
__device__ void store_keys(T* to, std::int64_t stride, int count, int columns, const Fragments<m, n>& sums,
                           float factor) {
#pragma unroll
  for (int i = 0; i < m; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = fragment_row(i, half);
      if (row < count) store_row(to + row * stride, columns, sums, i, half, factor);
    }
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    keys_kernel(AttentionGradients gradients, AttentionLayout layout, KeyParts parts) {
  constexpr int dim = S::dim;
  constexpr int kThreads = S::kThreads;
  constexpr int kKeys = S::kKeys;
  using Buffer = QueryBuffer<dim, S::queries, kThreads>;
  constexpr int kKeyTiles = S::together;
  constexpr int kQueryTiles = S::own_queries / 8;
  extern __shared__ __align__(Tile<128>::kAlignment) bf16 backward_memory[];
  const SequenceTile tile = find_tile(layout.offsets, layout.sequences, blockIdx.x, kKeys, false);
  if (tile.first >= tile.length) return;
  const int first_head = static_cast<int>(blockIdx.y) * parts.heads;
  const int kv_head = layout.kv_head_of(first_head);
  const Tile<dim> keys{shared_address(backward_memory)};
  const Tile<dim> values = keys.after(kKeys);
  const int stride = layout.qkv_columns();
  const bf16* rows = gradients.qkv + (tile.begin + tile.first) * stride;
  const int count = tile.length - tile.first;
  keys.template copy<kKeys, kThreads>(rows + layout.key(kv_head), stride, count, layout.head_dim);
  values.template copy<kKeys, kThreads>(rows + layout.value(kv_head), stride, count, layout.head_dim);
  float* lines = reinterpret_cast<float*>(backward_memory + S::kTileValues);
  uint4* handed = reinterpret_cast<uint4*>(lines + S::kLineValues);
  const auto buffer_of = [&](int which) { return Buffer(values.after(kKeys), lines, which); };

  const int start = layout.causal ? tile.first : 0;  // the first query that sees any of these keys
  const int last_head = first_head + parts.heads;
  QueryTile some{first_head, start};
  buffer_of(0).copy(gradients, tile, some, layout);

  const WarpPart<S> part;
  const int key = tile.first + part.keys;
  typename S::Sums dkeys;
  typename S::Sums dvalues;
  clear(dkeys);
  clear(dvalues);
  for (int which = 0; some.head < last_head; which = 1 - which) {
    wait_copies();
    __syncthreads();  // this tile has arrived, and all warps are done with the previous one
    const int query = some.first;
    some = some.next(S::queries, start, tile.length);
    if (some.head < last_head) buffer_of(1 - which).copy(gradients, tile, some, layout);
    if (layout.causal && query + S::queries <= key) continue;  // none of these queries sees the warp's keys
    const Buffer buffer = buffer_of(which);
    typename S::Scores scores;
    clear(scores);
    add_row_products<kKeyTiles, kQueryTiles, dim>(scores, keys, part.keys, buffer.queries, part.queries);
    if (layout.causal && query + part.queries < key + 16 * kKeyTiles - 1) {
      mask_queries(scores, key, query + part.queries);
    }
    probabilities(scores, buffer.log_sums + part.queries, layout.scale * kLog2E);
    part.add_queries(dvalues, scores, buffer.douts, handed);
    typename S::Scores slopes;
    clear(slopes);
    add_row_products<kKeyTiles, kQueryTiles, dim>(slopes, values, part.keys, buffer.douts, part.queries);
    key_slopes(slopes, scores, buffer.delta + part.queries);
    part.add_queries(dkeys, slopes, buffer.queries, handed + S::kBlockVectors);
  }
  const std::int64_t to_values = layout.value(0) - layout.key(0);
  const std::int64_t column = layout.key(kv_head) + part.columns;
  const int columns = layout.head_dim - part.columns;
  const int rows_left = tile.length - key;
  if (parts.sums == nullptr) {
    bf16* to = gradients.dqkv + (tile.begin + key) * stride + column;
    store_keys(to, stride, rows_left, columns, dkeys, layout.scale);
    store_keys(to + to_values, stride, rows_left, columns, dvalues, 1.0f);
  } else {
    const int which = static_cast<int>(blockIdx.y) % parts.count;
    const std::int64_t row = which * layout.rows + tile.begin + key;
    float* to = parts.sums + row * 2 * to_values + column - layout.key(0);
    store_keys(to, 2 * to_values, rows_left, columns, dkeys, 1.0f);
    store_keys(to + to_values, 2 * to_values, rows_left, columns, dvalues, 1.0f);
  }
}

template <typename S>
void start(const CudaTarget& target, const AttentionLayout& layout, const AttentionGradients& gradients) {
  constexpr const char* kOperation = "attention_backward";
  const std::int64_t tiles = tile_numbers(layout.rows, layout.sequences, S::kKeys);
  KeyParts parts = parts_of(layout, tiles);
  const std::int64_t size = 2 * layout.rows * (layout.value(0) - layout.key(0));  // values of dk and dv
  std::shared_ptr<void> sums;
  if (parts.count > 1) {
    sums = counted_memory(target, kOperation, static_cast<std::size_t>(parts.count * size) * sizeof(float));
    parts.sums = static_cast<float*>(sums.get());
  }
  const dim3 grid(grid_size(kOperation, tiles), static_cast<unsigned>(layout.kv_heads * parts.count));
  launch(target, kOperation, keys_kernel<S>, grid, S::kThreads, S::kSharedBytes, gradients, layout, parts);
  if (parts.count == 1) return;
  each_value<kVector<bf16>>(target, kOperation, size, true, AddKeyParts{gradients.dqkv, parts, layout});
}

}  // namespace attention_keys

void key_gradients(const CudaTarget& target, const AttentionLayout& layout,
                   const AttentionGradients& gradients, AttentionWay tiles) {
  using namespace attention_keys;
  with_width(layout.head_dim, [&](auto width) {
    using Small = Shape<width(), width() <= 64 ? 64 : 32, 1, 4, 2>;
    using Large = Shape<width(), 64, width() <= 80 ? 1 : 2, 8, 1>;
    using LessMemory = Shape<width(), width() <= 64 ? 64 : 32, 1, 8, 1>;
    const auto run = tiles == AttentionWay::tiles_64              ? start<Small>
                     : Large::kSharedBytes <= target.shared_bytes ? start<Large>
                                                                  : start<LessMemory>;
    run(target, layout, gradients);
  });
}

}  // namespace dflop::cuda
