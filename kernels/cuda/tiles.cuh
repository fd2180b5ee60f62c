// A Tile holds rows of one attention head in shared memory. The functions here multiply tiles on tensor
// cores.
#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace dflop::cuda {

/// Packs two values of adjacent columns into one register of a fragment; `low` has the lower column.
__device__ inline unsigned pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

/// A Tile holds rows of `width` values of one head. If the head is narrower, the rest is zeros. The 16-byte
/// chunks of a row are permuted by the row's number, so that chunks of eight rows at the same columns lie in
/// different banks. For this, rows have a multiple of 8 chunks in memory; chunks past `width` are neither
/// written nor read.
template <int width>
struct Tile {
  static constexpr int kColumns = (width + 63) / 64 * 64;  ///< row width in memory
  static constexpr int kChunks = kColumns / 8;
  static constexpr unsigned kRowBytes = kColumns * sizeof(bf16);
  static constexpr unsigned kAlignment = 128;  ///< of the shared address `data`

  unsigned data;

  /// Returns the tile that follows this one in shared memory, if this one has `rows` rows.
  __device__ Tile after(int rows) const { return {data + static_cast<unsigned>(rows) * kRowBytes}; }

  __device__ unsigned at(int row, int chunk) const {
    const unsigned exchanged = static_cast<unsigned>(chunk) ^ (static_cast<unsigned>(row) % 8);
    return data + static_cast<unsigned>(row) * kRowBytes + exchanged * 16;
  }
  /// Returns the place of chunk c + `chunks` of a row, given the place of chunk c. In their last three bits,
  /// c and `chunks` must have no set bit in common: then this takes one register operation.
  static __device__ unsigned ahead(unsigned place, int chunks) {
    return (place ^ static_cast<unsigned>(chunks % 8 * 16)) + static_cast<unsigned>(chunks / 8 * 8 * 16);
  }

  /// Begins to copy `rows` rows that are `stride` values apart. Only the first `count` of them, at least one,
  /// exist; the others become zeros. All `threads` threads of the block must take part. A thread begins
  /// `unrolled` copies at once; more copies need more registers, of which wide heads leave few.
  template <int rows, int threads, int unrolled = 4>
  __device__ void copy(const bf16* from, int stride, int count, int head_dim) const {
    constexpr int kStep =
        threads / kChunks;  // rows per step; a multiple of 8, so that a thread keeps its bank
    static_assert(threads % kChunks == 0 && kStep % 8 == 0 && rows % kStep == 0);
    const int row = static_cast<int>(threadIdx.x) / kChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    if (chunk * 8 >= width) return;
    const bool in_head = chunk * 8 < head_dim;
    const char* column = reinterpret_cast<const char*>(from + (in_head ? chunk * 8 : 0));
    const int stride_bytes = stride * static_cast<int>(sizeof(bf16));
    const unsigned to = at(row, chunk);
#pragma unroll unrolled
    for (int step = 0; step < rows; step += kStep) {
      const int from_row = min(row + step, count - 1);
      copy_16(to + static_cast<unsigned>(step) * kRowBytes, column + std::int64_t{from_row} * stride_bytes,
              in_head && row + step < count);
    }
  }
};

/// Fragments hold a warp's product, which has 16 * m rows and 8 * n columns. Element [i][j] is a fragment, as
/// multiply_add() computes it.
template <int m, int n>
using Fragments = float[m][n][4];

/// Adds rows [first, first + 16 m) of left * (rows [second, second + 8 n) of right)^T to sums.
template <int m, int n, int width>
__device__ void add_row_products(Fragments<m, n>& sums, Tile<width> left, int first, Tile<width> right,
                                 int second = 0) {
  using Rows = Tile<width>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned from_left = left.at(first + lane % 16, lane / 16);
  const unsigned from_right = right.at(second + lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < width / 16; ++k) {
    unsigned a[m][4];
#pragma unroll
    for (int i = 0; i < m; ++i) load_matrices(a[i], Rows::ahead(from_left, 2 * k) + 16 * i * Rows::kRowBytes);
#pragma unroll
    for (int j = 0; j < n; j += 2) {
      unsigned b[4];
      load_matrices(b, Rows::ahead(from_right, 2 * k) + 8 * j * Rows::kRowBytes);
#pragma unroll
      for (int i = 0; i < m; ++i) {
        multiply_add(sums[i][j], a[i], b[0], b[1]);
        multiply_add(sums[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

/// Packed holds 16 * m rows and 16 * k columns in bf16, as left factors of multiply_add().
template <int m, int k>
using Packed = unsigned[m][k][4];

template <int m, int n>
__device__ void pack_products(Packed<m, n / 2>& packed, const Fragments<m, n>& products) {
#pragma unroll
  for (int i = 0; i < m; ++i) {
#pragma unroll
    for (int k = 0; k < n / 2; ++k) {
      const float(&low)[4] = products[i][2 * k];
      const float(&high)[4] = products[i][2 * k + 1];
      packed[i][k][0] = pack(low[0], low[1]);
      packed[i][k][1] = pack(low[2], low[3]);
      packed[i][k][2] = pack(high[0], high[1]);
      packed[i][k][3] = pack(high[2], high[3]);
    }
  }
}

/// Adds left * (part of right) to sums. The part is the rows of `right` from `row` on and the 8 n columns
/// from `column` on. `column` must be 0, or a multiple of 8 n with 8 n a power of two.
template <int m, int n, int steps, int width>
__device__ void add_products(Fragments<m, n>& sums, const Packed<m, steps>& left, Tile<width> right, int row,
                             int column) {
  using Rows = Tile<width>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned from_right = right.at(row + lane % 16, column / 8 + lane / 16);
#pragma unroll
  for (int k = 0; k < steps; ++k) {
#pragma unroll
    for (int j = 0; j < n; j += 2) {
      unsigned b[4];
      load_matrices_transposed(b, Rows::ahead(from_right, j) + 16 * k * Rows::kRowBytes);
#pragma unroll
      for (int i = 0; i < m; ++i) {
        multiply_add(sums[i][j], left[i][k], b[0], b[1]);
        multiply_add(sums[i][j + 1], left[i][k], b[2], b[3]);
      }
    }
  }
}

template <int m, int n>
__device__ void clear(Fragments<m, n>& sums) {
#pragma unroll
  for (int i = 0; i < m; ++i) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
#pragma unroll
      for (float& value : sums[i][j]) value = 0.0f;
    }
  }
}

/// These return the position of a lane's values in Fragments: fragment_row() the row of the values [i][...][2
/// half] and [2 half + 1], fragment_column() the lane's first column in fragment j.
__device__ inline int fragment_row(int i, int half) {
  return 16 * i + 8 * half + static_cast<int>(threadIdx.x) % kWarp / 4;
}
__device__ inline int fragment_column(int j) {
  return 8 * j + static_cast<int>(threadIdx.x) % 4 * 2;
}

/// Sets the score of each query and key to -inf if the query must not see the key. `query` is the warp's
/// first query and `key` the tile's first key. A query sees the keys before `length`; with `causal`, only the
/// keys up to its own position.
template <int m, int n>
__device__ void mask(Fragments<m, n>& scores, int query, int key, int length, bool causal) {
#pragma unroll
  for (int i = 0; i < m; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + fragment_row(i, half);
      const int visible = causal && row + 1 < length ? row + 1 : length;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const int column = key + fragment_column(j);
        if (column >= visible) scores[i][j][2 * half] = -INFINITY;
        if (column + 1 >= visible) scores[i][j][2 * half + 1] = -INFINITY;
      }
    }
  }
}

/// Writes the lane's values of row fragment_row(i, half), times `factor`, to the row of a head that begins at
/// `to`, in bf16 or f32.
template <typename T, int m, int n>
__device__ void store_row(T* to, int head_dim, const Fragments<m, n>& sums, int i, int half, float factor) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
    if (8 * j >= head_dim) break;
    const float pair[2] = {sums[i][j][2 * half] * factor, sums[i][j][2 * half + 1] * factor};
    store(to + fragment_column(j), pair);
  }
}

/// Calls f with the width for which a head's products are computed, as a std::integral_constant: head_dim
/// rounded up to 64, 80 or 128. @pre head_dim is at most 128
template <typename F>
void with_width(int head_dim, F f) {
  if (head_dim <= 64) {
    f(std::integral_constant<int, 64>());
  } else if (head_dim <= 80) {
    f(std::integral_constant<int, 80>());
  } else {
    f(std::integral_constant<int, 128>());
  }
}

}  // namespace dflop::cuda
