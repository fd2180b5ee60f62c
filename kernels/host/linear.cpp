#include "kernels/host/linear.hpp"

#include "kernels/host/matrix.hpp"
#include "kernels/operation_checks.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
void HostLinear<T>::forward(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  check_linear(y, x, weight, bias);
  auto out = view<T>(y);
  out.noalias() = view<T>(x) * view<T>(weight).transpose();
  if (bias.columns > 0) out.rowwise() += view<T>(bias).row(0);
}

template <typename T>
void HostLinear<T>::backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  check_linear_backward_input(dx, dy, weight);
  view<T>(dx).noalias() = view<T>(dy) * view<T>(weight);
}

template <typename T>
void HostLinear<T>::backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x) {
  check_linear_backward_weight(dweight, dbias, dy, x);
  const auto gradient = view<T>(dy);
  view<T>(dweight).noalias() += gradient.transpose() * view<T>(x);
  if (dbias.columns == 0) return;
  auto sum = view<T>(dbias).row(0);
  for (Index row = 0; row < gradient.rows(); ++row) sum += gradient.row(row);
}

template struct HostLinear<float>;
template struct HostLinear<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
