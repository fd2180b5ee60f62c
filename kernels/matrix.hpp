// Operations take these: matrices of values or sums in a device's memory, and lists of numbers.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace dflop {

/// A MatrixOf is rows x columns numbers of one kind in device memory, row after row without gaps. The
/// operations' DType says how wide they are. Vectors have one row.
template <typename Kind, typename Data>
struct MatrixOf {
  Data* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  MatrixOf() = default;
  MatrixOf(Data* d, std::int64_t r, std::int64_t c) : data(d), rows(r), columns(c) {}
  /// A matrix that may be written may be read.
  template <typename From>
  requires(std::is_const_v<Data> && !std::is_const_v<From>) MatrixOf(const MatrixOf<Kind, From>& m)
      : data(m.data), rows(m.rows), columns(m.columns) {}  // NOLINT

  std::int64_t size() const { return rows * columns; }
};

/// A Matrix has activations, weights and their gradients.
using Matrix = MatrixOf<struct ValueKind, void>;
using ConstMatrix = MatrixOf<struct ValueKind, const void>;
/// Sums are statistics, gradients of weights, optimizer states and master weights.
using Sums = MatrixOf<struct SumKind, void>;
using ConstSums = MatrixOf<struct SumKind, const void>;

/// An InOutMatrix is an argument that an operation reads and then changes in place; a Matrix is only written.
struct InOutMatrix : Matrix {
  using Matrix::Matrix;
  template <std::convertible_to<Matrix> Any>
  InOutMatrix(Any&& matrix) : Matrix(std::forward<Any>(matrix)) {}  // NOLINT: any that is a matrix
};

/// Indices are whole numbers that both sides can read: `host` for sizes and grids, `device` for kernels.
struct Indices {
  std::span<const std::int32_t> host;
  const std::int32_t* device = nullptr;  ///< the same numbers; on the host device the same memory
};

}  // namespace dflop
