// This is the backward pass over queries. A block holds 128 or 64 queries of a head, a quarter for each of
// its 4 warps, and loops over the keys that they see, 32 at a time.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/tiles.cuh"

namespace dflop::cuda {
namespace attention_queries {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kKeys = 32;
constexpr int kKeyTiles = kKeys / 8;

/// A Shape says how the work of a block is divided among its warps: each warp has `row_tiles` fragments of 16
/// queries. At least `blocks` blocks should fit on a multiprocessor at once.
template <int head_dim, int row_tiles, int blocks>
struct Shape {
  static constexpr int dim = head_dim;
  static constexpr int kRowTiles = row_tiles;
  static constexpr int kBlocks = blocks;
  static constexpr int kQueries = kWarps * row_tiles * 16;
  static constexpr std::size_t kSharedBytes = (2 * kQueries + 4 * kKeys) * Tile<dim>::kRowBytes;
};

/// QueryRows hold the log2 of the sum of exponentials and the delta of each of the lane's queries.
template <int kRowTiles>
struct QueryRows {
  float log_sum[kRowTiles][2];
  float delta[kRowTiles][2];
};

template <int kRowTiles>
__device__ QueryRows<kRowTiles> query_rows(const AttentionGradients& from, const SequenceTile& tile,
                                           int warp_row, int head, const AttentionLayout& layout) {
  QueryRows<kRowTiles> rows;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.first + warp_row + fragment_row(i, half);
      const bool inside = query < tile.length;
      const std::int64_t place = (tile.begin + query) * layout.heads + head;
      rows.log_sum[i][half] = inside ? from.log_sums[place] * kLog2E : INFINITY;  // makes all probabilities 0
      rows.delta[i][half] = inside ? from.delta[place] : 0.0f;
    }
  }
  return rows;
}

/// Turns slopes = dout v^T into ds. Rows of `scores` are queries and columns are keys; a score is -inf if the
/// query does not see the key.
template <int kRowTiles>
__device__ void query_slopes(Fragments<kRowTiles, kKeyTiles>& slopes,
                             const Fragments<kRowTiles, kKeyTiles>& scores, const QueryRows<kRowTiles>& rows,
                             float scale) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float p = power_of_two(scores[i][j][c] * scale - rows.log_sum[i][c / 2]);
        slopes[i][j][c] = p * (slopes[i][j][c] - rows.delta[i][c / 2]);
      }
    }
  }
}

template <typename S>
__global__ void __launch_bounds__(kThreads, S::kBlocks)
    queries_kernel(AttentionGradients gradients, AttentionLayout layout) {
  constexpr int dim = S::dim;
  constexpr int kRowTiles = S::kRowTiles;
  constexpr int kQueries = S::kQueries;
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
  // Two buffers: while the block computes with one tile, the keys and values of the next tile are copied.
  const auto keys_of = [&](int key) { return douts.after(kQueries + key / kKeys % 2 * 2 * kKeys); };
  const auto copy = [&](int key) {
    const bf16* from = keys_of_head + std::int64_t{key} * stride;
    const Tile<dim> keys = keys_of(key);
    const int count = tile.length - key;
    keys.template copy<kKeys, kThreads>(from, stride, count, layout.head_dim);
    keys.after(kKeys).template copy<kKeys, kThreads>(from + to_values, stride, count, layout.head_dim);
  };
  const int count = tile.length - tile.first;
  queries.template copy<kQueries, kThreads>(rows + std::int64_t{tile.first} * stride + layout.query(head),
                                            stride, count, layout.head_dim);
  douts.template copy<kQueries, kThreads>(
      gradients.dout + (tile.begin + tile.first) * layout.out_columns() + layout.query(head),
      layout.out_columns(), count, layout.head_dim);
  copy(0);

  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kRowTiles * 16;
  const int query = tile.first + warp_row;  // the warp's first query
  const QueryRows<kRowTiles> known = query_rows<kRowTiles>(gradients, tile, warp_row, head, layout);
  Fragments<kRowTiles, dim / 8> sums;
  clear<kRowTiles, dim / 8>(sums);
  const int seen = layout.causal && tile.first + kQueries < tile.length ? tile.first + kQueries : tile.length;
  for (int key = 0; key < seen; key += kKeys) {
    wait_copies();
    __syncthreads();  // this tile has arrived, and all warps are done with the previous one
    if (key + kKeys < seen) copy(key + kKeys);
    if (layout.causal && key >= query + kRowTiles * 16) continue;  // none of the warp's queries sees it
    const Tile<dim> keys = keys_of(key);
    Fragments<kRowTiles, kKeyTiles> scores;
    Fragments<kRowTiles, kKeyTiles> slopes;
    clear<kRowTiles, kKeyTiles>(scores);
    clear<kRowTiles, kKeyTiles>(slopes);
    add_row_products<kRowTiles, kKeyTiles, dim>(scores, queries, warp_row, keys);
    add_row_products<kRowTiles, kKeyTiles, dim>(slopes, douts, warp_row, keys.after(kKeys));
    if (key + kKeys > tile.length || (layout.causal && key + kKeys > query + 1)) {
      mask<kRowTiles, kKeyTiles>(scores, query, key, tile.length, layout.causal);
    }
    query_slopes<kRowTiles>(slopes, scores, known, layout.scale * kLog2E);
    Packed<kRowTiles, kKeyTiles / 2> packed;
    pack_products<kRowTiles, kKeyTiles>(packed, slopes);
    add_products<kRowTiles, dim / 8, kKeyTiles / 2>(sums, packed, keys, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + fragment_row(i, half);
      if (row >= tile.length) continue;
      bf16* to = gradients.dqkv + (tile.begin + row) * stride + layout.query(head);
      store_row(to, layout.head_dim, sums, i, half, layout.scale);
    }
  }
}

template <typename S>
void start(const CudaTarget& target, const AttentionLayout& layout, const AttentionGradients& gradients) {
  constexpr const char* kOperation = "attention_backward";
  const dim3 grid(grid_size(kOperation, tile_numbers(layout.rows, layout.sequences, S::kQueries)),
                  static_cast<unsigned>(layout.heads));
  launch(target, kOperation, queries_kernel<S>, grid, kThreads, S::kSharedBytes, gradients, layout);
}

}  // namespace attention_queries

void query_gradients(const CudaTarget& target, const AttentionLayout& layout,
                     const AttentionGradients& gradients, AttentionWay tiles) {
  using namespace attention_queries;
  with_width(layout.head_dim, [&](auto width) {
    using Small = Shape<width(), 1, width() <= 64 ? 4 : 3>;
    using Large = Shape<width(), 2, 2>;
    const auto run = tiles == AttentionWay::tiles_64 ? start<Small> : start<Large>;
    run(target, layout, gradients);
  });
}

}  // namespace dflop::cuda
