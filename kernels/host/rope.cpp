#include "kernels/host/rope.hpp"

#include <cmath>

#include "kernels/host/matrix.hpp"
#include "kernels/operation_checks.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

/// base^(-2 i / head_dim) for the pairs i of a head.
Eigen::ArrayXd frequencies(int head_dim, double base) {
  Eigen::ArrayXd turns(head_dim / 2);
  for (Index i = 0; i < turns.size(); ++i)
    turns(i) = std::pow(base, -2.0 * static_cast<double>(i) / head_dim);
  return turns;
}

/// Turns the pairs (first[i], second[i]) by the angles of cosine and sine.
template <typename T>
void turn(T* __restrict first, T* __restrict second, const Eigen::Array<T, Eigen::Dynamic, 1>& cosine,
          const Eigen::Array<T, Eigen::Dynamic, 1>& sine) {
  for (Index i = 0; i < cosine.size(); ++i) {
    const T x = first[i];
    const T y = second[i];
    first[i] = x * cosine(i) - y * sine(i);
    second[i] = y * cosine(i) + x * sine(i);
  }
}

}  // namespace

template <typename T>
void HostRope<T>::rope(Matrix qkv, const AttentionShape& shape, Indices positions, double base,
                       bool inverse) {
  check_rope(qkv, shape, positions);
  const Index half = shape.head_dim / 2;
  const Eigen::ArrayXd turns = frequencies(shape.head_dim, base) * (inverse ? -1.0 : 1.0);
  Eigen::Array<T, Eigen::Dynamic, 1> cosine(half);
  Eigen::Array<T, Eigen::Dynamic, 1> sine(half);
  auto rows = view<T>(qkv);
  for (Index row = 0; row < rows.rows(); ++row) {
    const double position = positions.host[static_cast<std::size_t>(row)];
    for (Index i = 0; i < half; ++i) {  // in double: far positions have large angles
      cosine(i) = static_cast<T>(std::cos(position * turns(i)));
      sine(i) = static_cast<T>(std::sin(position * turns(i)));
    }
    for (Index head = 0; head < shape.heads + shape.kv_heads; ++head) {
      T* pairs = rows.row(row).data() + head * shape.head_dim;
      turn<T>(pairs, pairs + half, cosine, sine);
    }
  }
}

template struct HostRope<float>;
template struct HostRope<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
