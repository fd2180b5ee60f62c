// This is FlashAttention-2 (Dao 2023, algorithm 1). A block holds some queries of one head and loops over
// tiles of the keys and values that they see. Scores stay in registers and never reach global memory. While
// the block computes with the keys of a tile, the values of the tile are copied to shared memory. While it
// computes with the values, the keys of the next tile are copied.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/tiles.cuh"

namespace dflop::cuda {
namespace attention_forward {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kKeys = 64;
constexpr int kKeyTiles = kKeys / 8;

/// A Shape says how the work of a block is divided among its warps: each warp has `row_tiles` fragments of 16
/// queries. At least `blocks` blocks should fit on a multiprocessor at once.
template <int head_dim, int row_tiles, int blocks>
struct Shape {
  static constexpr int dim = head_dim;
  static constexpr int kRowTiles = row_tiles;
  static constexpr int kBlocks = blocks;
  static constexpr int kQueries = kWarps * row_tiles * 16;
  static constexpr std::size_t kSharedBytes = (kQueries + 2 * kKeys) * Tile<dim>::kRowBytes;
};

/// Running holds the state of the online softmax. For each of the lane's rows [i][half] it has the largest
/// score so far, and the sum of exponentials over the lane's own keys.
template <int kRowTiles>
struct Running {
  float largest[kRowTiles][2];
  float sum[kRowTiles][2];
};

__device__ float largest_of_quad(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ float sum_of_quad(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

/// Replaces scores by exponentials relative to the row's new largest score, and rescales the earlier sums and
/// outputs to this score (online softmax). `scale` is the scale of scores times log2(e), for powers of two.
/// Each row sees a key of the first tile, so `largest` is finite.
template <int kRowTiles, int n>
__device__ void exponentials(Fragments<kRowTiles, kKeyTiles>& scores, Fragments<kRowTiles, n>& out,
                             Running<kRowTiles>& running, float scale) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = running.largest[i][half];
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
        largest = fmaxf(largest, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
      }
      largest = largest_of_quad(largest);
      const float shrink = power_of_two((running.largest[i][half] - largest) * scale);
      running.largest[i][half] = largest;
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[i][j][2 * half + c];
          score = power_of_two(score * scale - largest * scale);
          sum += score;
        }
      }
      running.sum[i][half] = running.sum[i][half] * shrink + sum;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        out[i][j][2 * half] *= shrink;
        out[i][j][2 * half + 1] *= shrink;
      }
    }
  }
}

/// Divides by the sums of exponentials and writes the warp's rows, except rows past the end of the sequence.
template <int kRowTiles, int n>
__device__ void write_rows(bf16* out, float* statistics, const Fragments<kRowTiles, n>& sums,
                           const Running<kRowTiles>& running, const SequenceTile& tile, int head,
                           const AttentionLayout& layout) {
  const int first = tile.first + static_cast<int>(threadIdx.x) / kWarp * kRowTiles * 16;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sum_of_quad(running.sum[i][half]);
      const int query = first + fragment_row(i, half);
      if (query >= tile.length) continue;
      const std::int64_t row = tile.begin + query;
      store_row(out + row * layout.out_columns() + layout.query(head), layout.head_dim, sums, i, half,
                1.0f / sum);
      if (threadIdx.x % 4 == 0) {
        statistics[row * layout.heads + head] = running.largest[i][half] * layout.scale + logf(sum);
      }
    }
  }
}

template <typename S>
__global__ void __launch_bounds__(kThreads, S::kBlocks)
    forward_kernel(bf16* out, float* statistics, const bf16* qkv, AttentionLayout layout) {
  constexpr int dim = S::dim;
  constexpr int kRowTiles = S::kRowTiles;
  constexpr int kQueries = S::kQueries;
  extern __shared__ __align__(Tile<dim>::kAlignment) bf16 forward_memory[];
  const SequenceTile tile = find_tile(layout.offsets, layout.sequences, blockIdx.x, kQueries, layout.causal);
  if (tile.first >= tile.length) return;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = layout.kv_head_of(head);
  const Tile<dim> queries{shared_address(forward_memory)};
  const Tile<dim> keys = queries.after(kQueries);
  const Tile<dim> values = keys.after(kKeys);
  const int stride = layout.qkv_columns();
  const bf16* rows = qkv + tile.begin * stride;
  const bf16* keys_of_head = rows + layout.key(kv_head);
  const auto copy_keys = [&](Tile<dim> to, int key, std::int64_t place) {
    to.template copy<kKeys, kThreads>(keys_of_head + std::int64_t{key} * stride + place, stride,
                                      tile.length - key, layout.head_dim);
  };
  const std::int64_t to_values = layout.value(0) - layout.key(0);

  Fragments<kRowTiles, dim / 8> sums;
  clear<kRowTiles, dim / 8>(sums);
  Running<kRowTiles> running;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      running.largest[i][half] = -INFINITY;
      running.sum[i][half] = 0.0f;
    }
  }
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kRowTiles * 16;
  const int seen = tile.first + kQueries < tile.length && layout.causal ? tile.first + kQueries : tile.length;
  queries.template copy<kQueries, kThreads>(rows + std::int64_t{tile.first} * stride + layout.query(head),
                                            stride, tile.length - tile.first, layout.head_dim);
  copy_keys(keys, 0, 0);
  const int query = tile.first + warp_row;  // the warp's first query
  for (int key = 0; key < seen; key += kKeys) {
    const bool sees = !layout.causal || key < query + kRowTiles * 16;  // any of the warp's queries
    wait_copies();
    __syncthreads();  // the keys have arrived, and all warps are done with the previous values
    copy_keys(values, key, to_values);
    Fragments<kRowTiles, kKeyTiles> scores;
    if (sees) {
      clear<kRowTiles, kKeyTiles>(scores);
      add_row_products<kRowTiles, kKeyTiles, dim>(scores, queries, warp_row, keys);
      if (key + kKeys > tile.length || (layout.causal && key + kKeys > query + 1)) {
        mask<kRowTiles, kKeyTiles>(scores, query, key, tile.length, layout.causal);
      }
      exponentials<kRowTiles, dim / 8>(scores, sums, running, layout.scale * kLog2E);
    }
    wait_copies();
    __syncthreads();  // the values have arrived, and all warps are done with these keys
    if (key + kKeys < seen) copy_keys(keys, key + kKeys, 0);
    if (sees) {
      Packed<kRowTiles, kKeyTiles / 2> packed;
      pack_products<kRowTiles, kKeyTiles>(packed, scores);
      add_products<kRowTiles, dim / 8, kKeyTiles / 2>(sums, packed, values, 0, 0);
    }
  }
  write_rows<kRowTiles, dim / 8>(out, statistics, sums, running, tile, head, layout);
}

template <typename S>
void start(const CudaTarget& target, const AttentionLayout& layout, Matrix out, Sums statistics,
           ConstMatrix qkv) {
  const dim3 grid(grid_size("attention", tile_numbers(layout.rows, layout.sequences, S::kQueries)),
                  static_cast<unsigned>(layout.heads));
  launch(target, "attention", forward_kernel<S>, grid, kThreads, S::kSharedBytes, values_of<bf16>(out),
         values_of(statistics), values_of<bf16>(qkv), layout);
}

}  // namespace attention_forward

void tensor_attention(const CudaTarget& target, const AttentionLayout& layout, Matrix out, Sums statistics,
                      ConstMatrix qkv, AttentionWay tiles) {
  using namespace attention_forward;
  with_width(layout.head_dim, [&](auto width) {
    using Small = Shape<width(), 1, width() <= 80 ? 4 : 3>;
    using Large = Shape<width(), 2, 2>;
    const auto run = tiles == AttentionWay::tiles_64 ? start<Small> : start<Large>;
    run(target, layout, out, statistics, qkv);
  });
}

}  // namespace dflop::cuda
