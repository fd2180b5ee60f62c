#include "kernels/host_rows.hpp"

#include "kernels/host_checks.hpp"
#include "kernels/host_matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
template <typename T>
void HostRows<T>::pool(Matrix y, ConstMatrix x, Indices begin, Indices end) {
  require_shape({"pool_rows", "y"}, y, y.rows, x.columns);
  require_shape({"pool_rows", "x"}, x, x.rows, y.columns);
  require_windows("pool_rows", begin, end, y.rows, x.rows);
  const auto in = view<T>(x);
  auto out = view<T>(y);
  for (Index i = 0; i < out.rows(); ++i) {
    const Index first = begin.host[static_cast<std::size_t>(i)];
    const Index last = end.host[static_cast<std::size_t>(i)];
    out.row(i) = in.row(first);
    for (Index row = first + 1; row < last; ++row) out.row(i) += in.row(row);
    out.row(i) /= static_cast<T>(last - first);
  }
}

template <typename T>
void HostRows<T>::pool_backward(Matrix dx, ConstMatrix dy, Indices begin, Indices end) {
  require_shape({"pool_rows_backward", "dx"}, dx, dx.rows, dy.columns);
  require_shape({"pool_rows_backward", "dy"}, dy, dy.rows, dx.columns);
  require_windows("pool_rows_backward", begin, end, dy.rows, dx.rows);
  const auto gradient = view<T>(dy);
  auto out = view<T>(dx);
  out.setZero();  // windows may overlap, and leave rows out
  for (Index i = 0; i < gradient.rows(); ++i) {
    const Index first = begin.host[static_cast<std::size_t>(i)];
    const Index last = end.host[static_cast<std::size_t>(i)];
    const T share = T(1) / static_cast<T>(last - first);
    for (Index row = first; row < last; ++row) out.row(row) += share * gradient.row(i);
  }
}

template <typename T>
void HostRows<T>::gather(Matrix y, ConstMatrix x, Indices index) {
  require_shape({"gather_rows", "y"}, y, std::ssize(index.host), x.columns);
  require_shape({"gather_rows", "x"}, x, x.rows, y.columns);
  require_below({"gather_rows", "index"}, index, x.rows);
  const auto in = view<T>(x);
  auto out = view<T>(y);
  for (Index i = 0; i < out.rows(); ++i) out.row(i) = in.row(index.host[static_cast<std::size_t>(i)]);
}

template <typename T>
void HostRows<T>::scatter_add(Matrix y, ConstMatrix x, Indices index) {
  require_shape({"scatter_add_rows", "x"}, x, std::ssize(index.host), y.columns);
  require_shape({"scatter_add_rows", "y"}, y, y.rows, x.columns);
  require_below({"scatter_add_rows", "index"}, index, y.rows);
  const auto in = view<T>(x);
  auto out = view<T>(y);
  for (Index i = 0; i < in.rows(); ++i) out.row(index.host[static_cast<std::size_t>(i)]) += in.row(i);
}

template <typename T>
void HostRows<T>::add(Matrix y, ConstMatrix x) {
  require_shape({"add", "x"}, x, y.rows, y.columns);
  require_shape({"add", "y"}, y, x.rows, x.columns);
  flat<T>(y) += flat<T>(x);
}

template <typename T>
void HostRows<T>::zero(Matrix y) {
  require_shape({"zero", "y"}, y, y.rows, y.columns);
  flat<T>(y).setZero();
}

template <typename T>
void HostRows<T>::zero(Sums y) {
  require_shape({"zero", "y"}, y, y.rows, y.columns);
  flat<T>(y).setZero();
}

template <typename T>
void HostRows<T>::round(Matrix y, ConstSums x) {
  require_shape({"round", "x"}, x, y.rows, y.columns);
  require_shape({"round", "y"}, y, x.rows, x.columns);
  flat<T>(y) = flat<T>(x);  // sums have the precision of values here
}

template <typename T>
void HostRows<T>::scale(Sums y, double factor) {
  require_shape({"scale", "y"}, y, y.rows, y.columns);
  flat<T>(y) *= static_cast<T>(factor);
}

template struct HostRows<float>;
template struct HostRows<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
