#include "kernels/host/rows.hpp"

#include "kernels/host/matrix.hpp"
#include "kernels/operation_checks.hpp"

namespace dflop::DFLOP_HOST_TARGET {
template <typename T>
void HostRows<T>::pool(Matrix y, ConstMatrix x, Indices begin, Indices end) {
  check_pool_rows(y, x, begin, end);
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
  check_pool_rows_backward(dx, dy, begin, end);
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
  check_gather_rows(y, x, index);
  const auto in = view<T>(x);
  auto out = view<T>(y);
  for (Index i = 0; i < out.rows(); ++i) out.row(i) = in.row(index.host[static_cast<std::size_t>(i)]);
}

template <typename T>
void HostRows<T>::scatter_add(Matrix y, ConstMatrix x, Indices index) {
  check_scatter_add_rows(y, x, index);
  const auto in = view<T>(x);
  auto out = view<T>(y);
  for (Index i = 0; i < in.rows(); ++i) out.row(index.host[static_cast<std::size_t>(i)]) += in.row(i);
}

template <typename T>
void HostRows<T>::add(Matrix y, ConstMatrix x) {
  check_add(y, x);
  flat<T>(y) += flat<T>(x);
}

template <typename T>
void HostRows<T>::zero(Matrix y) {
  check_zero(y);
  flat<T>(y).setZero();
}

template <typename T>
void HostRows<T>::zero(Sums y) {
  check_sums("zero", y);
  flat<T>(y).setZero();
}

template <typename T>
void HostRows<T>::round(Matrix y, ConstSums x) {
  check_round(y, x);
  flat<T>(y) = flat<T>(x);  // sums have the precision of values here
}

template <typename T>
void HostRows<T>::scale(Sums y, double factor) {
  check_sums("scale", y);
  flat<T>(y) *= static_cast<T>(factor);
}

template struct HostRows<float>;
template struct HostRows<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
