// Tiles of heads in shared memory, and their products on tensor cores.
#pragma once

#include "kernels/cuda_mma.cuh"
#include "kernels/cuda_reduce.cuh"
#include "kernels/cuda_values.cuh"

namespace dflop::cuda {

/// Rows of `dim` values of one head, which may be narrower: the rest is zeros. The 16-byte chunks of a row
/// are exchanged by the row's number, so that eight rows of a column of chunks lie in different banks.
template <int dim>
struct Tile {
  bf16* data;

  static constexpr int kChunks = dim / 8;

  __device__ bf16* at(int row, int chunk) const { return data + row * dim + ((chunk ^ (row & 7)) * 8); }

  /// Begins to copy `rows` rows that lie `stride` values apart; those from `count` on become zeros.
  template <int rows, int threads>
  __device__ void copy(const bf16* from, std::int64_t stride, int count, int head_dim) const {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < rows * kChunks; i += threads) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      const bool inside = row < count && chunk * 8 < head_dim;
      copy_16(at(row, chunk), inside ? from + row * stride + chunk * 8 : from, inside);
    }
  }
};

/// The warp's products of 16 * m rows by 8 * n columns; [i][j] is a fragment of multiply_add().
template <int m, int n>
using Fragments = float[m][n][4];

/// sums += rows [first, first + 16 m) of left * (rows [0, 8 n) of right)^T.
template <int m, int n, int dim>
__device__ void add_row_products(Fragments<m, n>& sums, Tile<dim> left, int first, Tile<dim> right) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int k = 0; k < dim / 16; ++k) {
    unsigned a[m][4];
#pragma unroll
    for (int i = 0; i < m; ++i) load_matrices(a[i], left.at(first + 16 * i + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int j = 0; j < n; j += 2) {
      unsigned b[4];
      load_matrices(b, right.at(8 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < m; ++i) {
        multiply_add(sums[i][j], a[i], b[0], b[1]);
        multiply_add(sums[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

/// sums += left * rows [0, 8 n) of right, where left is rounded to bf16.
template <int m, int n, int dim>
__device__ void add_products(Fragments<m, dim / 8>& sums, const Fragments<m, n>& left, Tile<dim> right) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int k = 0; k < n / 2; ++k) {
    unsigned a[m][4];
#pragma unroll
    for (int i = 0; i < m; ++i) {
      const float(&low)[4] = left[i][2 * k];
      const float(&high)[4] = left[i][2 * k + 1];
      a[i][0] = pack(low[0], low[1]);
      a[i][1] = pack(low[2], low[3]);
      a[i][2] = pack(high[0], high[1]);
      a[i][3] = pack(high[2], high[3]);
    }
#pragma unroll
    for (int j = 0; j < dim / 8; j += 2) {
      unsigned b[4];
      load_matrices_transposed(b, right.at(16 * k + lane % 16, j + lane / 16));
#pragma unroll
      for (int i = 0; i < m; ++i) {
        multiply_add(sums[i][j], a[i], b[0], b[1]);
        multiply_add(sums[i][j + 1], a[i], b[2], b[3]);
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

/// The warp's row that the lane has at [i][...][2 half], and its first column in fragment j.
__device__ inline int fragment_row(int i, int half) {
  return 16 * i + 8 * half + static_cast<int>(threadIdx.x) % kWarp / 4;
}
__device__ inline int fragment_column(int j) {
  return 8 * j + static_cast<int>(threadIdx.x) % 4 * 2;
}

/// Writes the lane's part of row [i][...][2 half], times `factor`, to the head that begins at `to`.
template <int m, int n>
__device__ void store_row(bf16* to, int head_dim, const Fragments<m, n>& sums, int i, int half,
                          float factor) {
#pragma unroll
  for (int j = 0; j < n; ++j) {
    if (8 * j >= head_dim) break;
    const float(&sum)[4] = sums[i][j];
    *reinterpret_cast<unsigned*>(to + fragment_column(j)) =
        pack(sum[2 * half] * factor, sum[2 * half + 1] * factor);
  }
}

}  // namespace dflop::cuda
