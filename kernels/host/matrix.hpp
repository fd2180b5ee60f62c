// This header selects the HostTarget for which a source is compiled. The host's operations are compiled from
// the same files for each target: for any processor, for AVX2 with fused multiply-add, which is three times
// as fast, and for AVX-512. make_host_kernels() chooses the target at run time. Each target's functions have
// their own namespace, and Eigen has a different name in each target, because a linker keeps only one of
// several functions with the same name.
//
// The functions in this header return Eigen views of the matrices of kernels/operation.hpp. Only the host's
// operations include this header.
#pragma once

// This renames Eigen, so no header before it may include Eigen.
#if defined(DFLOP_HOST_AVX512)
#define DFLOP_HOST_TARGET avx512
#define DFLOP_HOST_TARGET_NAME "avx512"  // prefix of its variants' names
#define Eigen EigenAvx512
#elif defined(DFLOP_HOST_AVX2)
#define DFLOP_HOST_TARGET avx2
#define DFLOP_HOST_TARGET_NAME "avx2"
#define Eigen EigenAvx2
#else
#define DFLOP_HOST_TARGET portable
#define DFLOP_HOST_TARGET_NAME "portable"
#endif

#define EIGEN_DONT_PARALLELIZE  // a rank computes only in its own thread, regardless of build flags
#include <Eigen/Core>
#include <algorithm>
#include <type_traits>

#include "kernels/kernels.hpp"

namespace dflop::DFLOP_HOST_TARGET {

// Each function sets the operations of one theme for the kernels' precision, f32 or f64, and is in the file
// with the theme's name (linear: operations.cpp).
void set_linear(Kernels& kernels);
void set_norms(Kernels& kernels);
void set_activations(Kernels& kernels);
void set_attention(Kernels& kernels);
void set_rows(Kernels& kernels);
void set_loss(Kernels& kernels);
void set_elementwise(Kernels& kernels);
void set_unpack(Kernels& kernels);
/// Adds this target's linear layers as variants to kernels of another target.
void add_linear(Kernels& kernels);
/// Adds attention in tiles (attention_tiles.cpp) as variants.
void add_tiled_attention(Kernels& kernels);
/// Adds variants of the activations that use the vectors of tiles.hpp (activation_tiles.cpp).
void add_tiled_activations(Kernels& kernels);

using Eigen::Index;

/// Calls f with a value whose type is the type of the kernels' values and sums: f32 or f64.
template <typename F>
void with_type(const Kernels& kernels, F f) {
  if (kernels.dtype() == DType::f64) {  // NOLINT(bugprone-branch-clone): of a template they look alike
    f(double());
  } else {
    f(float());
  }
}

template <typename T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Returns a Matrix, ConstMatrix, Sums or ConstSums as an Eigen matrix of T on the same memory.
template <typename T, typename AnyMatrix>
auto view(const AnyMatrix& matrix) {
  if constexpr (std::is_same_v<decltype(matrix.data), const void*>) {
    return Eigen::Map<const RowMajor<T>>(static_cast<const T*>(matrix.data), matrix.rows, matrix.columns);
  } else {
    return Eigen::Map<RowMajor<T>>(static_cast<T*>(matrix.data), matrix.rows, matrix.columns);
  }
}

/// A Part is a writable matrix or rectangle of a matrix; a ConstPart is a read-only one.
template <typename T>
using ConstPart = Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <typename T>
using Part = Eigen::Map<RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

/// const_part() and part() turn an Eigen expression of rows in memory into a ConstPart or a Part.
template <typename Rows>
auto const_part(const Rows& rows) {
  using T = typename Rows::Scalar;
  return ConstPart<T>(rows.data(), rows.rows(), rows.cols(), Eigen::OuterStride<>(rows.outerStride()));
}
template <typename Rows>
auto part(Rows&& rows) {
  using T = typename std::decay_t<Rows>::Scalar;
  return Part<T>(rows.data(), rows.rows(), rows.cols(), Eigen::OuterStride<>(rows.outerStride()));
}

// Eigen's products take longer to compile than all other host code. So these three functions wrap the needed
// products: if the folder is compiled as one unit, each is instantiated only once for each type.

/// Sets out = scale a b.
template <typename T>
void product(Part<T> out, T scale, ConstPart<T> a, ConstPart<T> b) {
  out.noalias() = (scale * a) * b;
}

/// Sets out = scale a b^T.
template <typename T>
void product_transposed(Part<T> out, T scale, ConstPart<T> a, ConstPart<T> b) {
  out.noalias() = (scale * a) * b.transpose();
}

/// Adds scale a^T b to out.
template <typename T>
void add_transposed_product(Part<T> out, T scale, ConstPart<T> a, ConstPart<T> b) {
  out.noalias() += (scale * a).transpose() * b;
}

/// Returns all values of a matrix as one array, for element-wise operations.
template <typename T, typename AnyMatrix>
auto flat(const AnyMatrix& matrix) {
  using Values = Eigen::Array<T, 1, Eigen::Dynamic>;
  if constexpr (std::is_same_v<decltype(matrix.data), const void*>) {
    return Eigen::Map<const Values>(static_cast<const T*>(matrix.data), matrix.size());
  } else {
    return Eigen::Map<Values>(static_cast<T*>(matrix.data), matrix.size());
  }
}

/// A Chunk has at most this many values, which are on the stack.
constexpr Index kChunk = 256;
template <typename T>
using Chunk = Eigen::Array<T, 1, Eigen::Dynamic, Eigen::RowMajor, 1, kChunk>;

/// Calls f(first, count) for [0, size) in chunks, so that intermediate values stay in the first-level cache.
template <typename F>
void for_each_chunk(Index size, F f) {
  for (Index first = 0; first < size; first += kChunk) f(first, std::min(kChunk, size - first));
}

}  // namespace dflop::DFLOP_HOST_TARGET
