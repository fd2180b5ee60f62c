// These functions compute products of small packed matrices, and exponentials, in vectors as wide as the
// target's registers. They use the compiler's vector types, so no code here is specific to one processor.
//
// The right side of a product is stored in panels. A panel holds all rows of some columns, row after row. It
// is two vectors wide; the last panel is one vector wide if that is enough for the remaining columns. A tile
// of the result stays in registers during the loop over the inner dimension (Goto and van de Geijn 2008,
// "Anatomy of High-Performance Matrix Multiplication").
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {

#if defined(DFLOP_HOST_AVX512)
constexpr Index kVectorBytes = 64;
constexpr int kTileRows = 12;  ///< of two vectors each: 24 of 32 registers
#elif defined(DFLOP_HOST_AVX2)
constexpr Index kVectorBytes = 32;
constexpr int kTileRows = 6;  ///< 12 of 16 registers
#else
constexpr Index kVectorBytes = 16;
constexpr int kTileRows = 4;
#endif

template <typename T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  typedef Bits BitsType __attribute__((vector_size(kVectorBytes)));
};
template <typename T>
using Vector = typename VectorOf<T>::Type;
template <typename T>
constexpr Index kLanes = kVectorBytes / static_cast<Index>(sizeof(T));
template <typename T>
constexpr Index kPanel = 2 * kLanes<T>;  ///< columns of a panel

template <typename T>
inline Vector<T> load(const T* from) {
  Vector<T> vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}
template <typename T>
inline void store(T* to, Vector<T> vector) {
  std::memcpy(to, &vector, sizeof vector);
}

/// Returns `columns` rounded up to whole vectors, as stored in panels.
template <typename T>
constexpr Index padded(Index columns) {
  return (columns + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

/// Calls f(first, width) for each panel of a matrix with `columns` columns. `width` is the panel's width in
/// memory.
template <typename T, typename F>
inline void for_each_panel(Index columns, F f) {
  for (Index first = 0; first < columns; first += kPanel<T>) {
    f(first, columns - first > kLanes<T> ? kPanel<T> : kLanes<T>);
  }
}

/// Sets to[i] = f(from[i]) for i in [0, count): whole vectors first, then the remaining values one by one.
template <typename T, typename F>
inline void map_values(T* to, const T* from, Index count, F f) {
  Index i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) store<T>(to + i, f(load(from + i)));
  for (; i < count; ++i) to[i] = f(from[i]);
}

/// Rows refers to a matrix in memory: value (row, column) is at data + row * stride + column.
template <typename T>
struct Rows {
  T* data = nullptr;
  Index stride = 0;
};

/// Copies a matrix [rows, columns] into panels and fills the rest of the last panel with zeros.
template <typename T>
void pack(T* panels, Rows<const T> from, Index rows, Index columns) {
  for_each_panel<T>(columns, [&](Index first, Index width) {
    T* to = panels + first * rows;
    const Index count = std::min(width, columns - first);
    for (Index row = 0; row < rows; ++row, to += width) {
      map_values(to, from.data + row * from.stride + first, count, [](auto x) { return x; });
      for (Index i = count; i < width; ++i) to[i] = T(0);
    }
  });
}

/// Writes the transpose of a square of 4 rows and columns, whose row i is at from + i * stride.
template <typename T>
inline void transpose_square(T* to, Index to_stride, const T* from, Index stride) {
  typedef T Four __attribute__((vector_size(4 * sizeof(T))));
  Four rows[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&rows[i], from + i * stride, sizeof(Four));
  const Four low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Four low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Four high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  const Four columns[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                           __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                           __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                           __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_stride, &columns[i], sizeof(Four));
}

/// Copies a matrix [columns, rows], transposed, into the panels of a matrix [rows, columns].
template <typename T>
void pack_transposed(T* panels, Rows<const T> from, Index rows, Index columns) {
  for_each_panel<T>(columns, [&](Index first, Index width) {
    T* to = panels + first * rows;
    const Index count = std::min(width, columns - first);
    Index i = 0;
    for (; i + 4 <= count; i += 4) {
      const T* values = from.data + (first + i) * from.stride;
      Index row = 0;
      for (; row + 4 <= rows; row += 4)
        transpose_square(to + row * width + i, width, values + row, from.stride);
      for (; row < rows; ++row) {
        for (Index j = 0; j < 4; ++j) to[row * width + i + j] = values[j * from.stride + row];
      }
    }
    for (; i < width; ++i) {
      const T* values = from.data + (first + i) * from.stride;
      for (Index row = 0; row < rows; ++row) to[row * width + i] = i < count ? values[row] : T(0);
    }
  });
}

/// A Left is the left side of a product. Its value (row, inner) is at data + row * row_stride + inner *
/// inner_stride.
template <typename T>
struct Left {
  const T* data = nullptr;
  Index row_stride = 0;
  Index inner_stride = 1;
};

/// Computes the product for one tile of the result: kRows rows of kVectors vectors. Adds it to the tile if
/// `add`, else replaces the tile.
template <typename T, int kRows, int kVectors>
inline void multiply_tile(T* out, Index out_stride, Left<T> left, const T* panel, Index inner, bool add) {
  Vector<T> sums[kRows][kVectors] = {};
  for (Index k = 0; k < inner; ++k) {
    Vector<T> right[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) right[v] = load(panel + (k * kVectors + v) * kLanes<T>);
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      const T value = left.data[row * left.row_stride + k * left.inner_stride];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[row][v] += value * right[v];
    }
  }
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      T* to = out + row * out_stride + v * kLanes<T>;
      store<T>(to, add ? load(to) + sums[row][v] : sums[row][v]);
    }
  }
}

/// Computes the product for the columns of one panel, tile by tile; the last tiles have fewer rows. Adds it
/// to the result if `add`, else replaces the result.
template <typename T, int kVectors, int kRows = kTileRows>
void multiply_panel(T* out, Index out_stride, Left<T> left, const T* panel, Index rows, Index inner,
                    bool add) {
  for (; rows >= kRows; rows -= kRows) {
    multiply_tile<T, kRows, kVectors>(out, out_stride, left, panel, inner, add);
    out += kRows * out_stride;
    left.data += kRows * left.row_stride;
  }
  if constexpr (kRows > 1) {
    if (rows > 0)
      multiply_panel<T, kVectors, kRows == 12 ? 8 : kRows / 2>(out, out_stride, left, panel, rows, inner,
                                                               add);
  }
}

constexpr Index kInnerBlock = 256;  ///< rows of a panel that stay in the first-level cache

/// Sets out[rows, columns] = left * panels or, with `add`, adds this product. Each row of out must have
/// capacity for padded(columns) values.
/// @param panel_rows rows of each panel; the product uses `inner` of them, from row `first` on
template <typename T>
void multiply(Rows<T> out, Left<T> left, const T* panels, Index panel_rows, Index first, Index rows,
              Index columns, Index inner, bool add) {
  for (Index k = 0; k < inner; k += kInnerBlock) {
    const Index count = std::min(kInnerBlock, inner - k);
    for_each_panel<T>(columns, [&](Index column, Index width) {
      const T* panel = panels + column * panel_rows + (first + k) * width;
      if (width == kPanel<T>) {
        multiply_panel<T, 2>(out.data + column, out.stride, left, panel, rows, count, add);
      } else {
        multiply_panel<T, 1>(out.data + column, out.stride, left, panel, rows, count, add);
      }
    });
    left.data += count * left.inner_stride;
    add = true;
  }
}

/// Returns e^x, accurate to about one unit in the last place; 0 for results below the smallest normal number.
/// @pre x is at most 88 in f32, 709 in f64
template <typename T>
inline Vector<T> exponential(Vector<T> x) {
  using Bits = typename VectorOf<T>::Bits;
  using BitsVector = typename VectorOf<T>::BitsType;
  constexpr int kDigits = std::numeric_limits<T>::digits - 1;  // behind the point
  constexpr auto kBias = static_cast<Bits>(std::numeric_limits<T>::max_exponent - 1);
  constexpr T kLowest = sizeof(T) == 4 ? T(-88) : T(-709);
  constexpr T kLog2E = static_cast<T>(1.4426950408889634);
  // ln 2 is split in two parts. The first has so few digits that its product with a power is exact.
  constexpr T kHigh = sizeof(T) == 4 ? T(0.693359375) : static_cast<T>(0.693145751953125);
  constexpr T kLow = sizeof(T) == 4 ? static_cast<T>(0.69314718055994531 - 0.693359375)
                                    : static_cast<T>(1.42860682030941723212e-6);
  constexpr T kRound = static_cast<T>(Bits{3} << (kDigits - 1));  // here all numbers are whole
  x = x < kLowest ? Vector<T>{} + kLowest : x;
  const Vector<T> shifted = x * kLog2E + kRound;
  const Vector<T> power = shifted - kRound;
  const Vector<T> rest = (x - power * kHigh) - power * kLow;
  // Evaluates the series of e^rest, for |rest| <= ln(2) / 2, by Horner's rule.
  constexpr int kTerms = sizeof(T) == 4 ? 7 : 13;
  constexpr auto inverse_factorial = [](int n) {
    double factorial = 1.0;
    for (int i = 2; i <= n; ++i) factorial *= i;
    return static_cast<T>(1.0 / factorial);
  };
  Vector<T> sum = Vector<T>{} + inverse_factorial(kTerms);
#pragma GCC unroll 16
  for (int i = kTerms - 1; i >= 0; --i) sum = sum * rest + inverse_factorial(i);
  // The lowest bits of `shifted` are the power, in two's complement.
  const auto bits =
      std::bit_cast<BitsVector>(shifted) - static_cast<Bits>(std::bit_cast<Bits>(kRound)) + kBias;
  return sum * std::bit_cast<Vector<T>>(bits << kDigits);
}

/// Reduces a vector of `count` values to one: combines its lower half with its upper half, and repeats until
/// one value is left.
template <typename T, Index count, typename Wide, typename Combine>
inline T reduce(Wide vector, Combine combine) {
  if constexpr (count == 1) {
    return vector[0];
  } else {
    typedef T Half __attribute__((vector_size(sizeof(T) * count / 2)));
    Half halves[2];
    std::memcpy(halves, &vector, sizeof vector);
    return reduce<T, count / 2>(combine(halves[0], halves[1]), combine);
  }
}

template <typename T>
inline T sum_of(Vector<T> vector) {
  return reduce<T, kLanes<T>>(vector, [](auto a, auto b) { return a + b; });
}
template <typename T>
inline T largest_of(Vector<T> vector) {
  return reduce<T, kLanes<T>>(vector, [](auto a, auto b) { return a > b ? a : b; });
}

}  // namespace dflop::DFLOP_HOST_TARGET
