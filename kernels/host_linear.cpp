#include "kernels/host_linear.hpp"

#include "kernels/host_checks.hpp"
#include "kernels/host_matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {

template <typename T>
void HostLinear<T>::forward(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  require_shape({"linear", "weight"}, weight, y.columns, x.columns);
  require_shape({"linear", "x"}, x, y.rows, weight.columns);
  require_shape({"linear", "y"}, y, x.rows, weight.rows);
  if (bias.columns > 0) require_shape({"linear", "bias"}, bias, 1, weight.rows);
  auto out = view<T>(y);
  out.noalias() = view<T>(x) * view<T>(weight).transpose();
  if (bias.columns > 0) out.rowwise() += view<T>(bias).row(0);
}

template <typename T>
void HostLinear<T>::backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  require_shape({"linear_backward_input", "weight"}, weight, dy.columns, dx.columns);
  require_shape({"linear_backward_input", "dy"}, dy, dx.rows, weight.rows);
  require_shape({"linear_backward_input", "dx"}, dx, dy.rows, weight.columns);
  view<T>(dx).noalias() = view<T>(dy) * view<T>(weight);
}

template <typename T>
void HostLinear<T>::backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x) {
  require_shape({"linear_backward_weight", "dweight"}, dweight, dy.columns, x.columns);
  require_shape({"linear_backward_weight", "dy"}, dy, x.rows, dweight.rows);
  require_shape({"linear_backward_weight", "x"}, x, dy.rows, dweight.columns);
  if (dbias.columns > 0) require_shape({"linear_backward_weight", "dbias"}, dbias, 1, dy.columns);
  const auto gradient = view<T>(dy);
  view<T>(dweight).noalias() += gradient.transpose() * view<T>(x);
  if (dbias.columns == 0) return;
  auto sum = view<T>(dbias).row(0);
  for (Index row = 0; row < gradient.rows(); ++row) sum += gradient.row(row);
}

template struct HostLinear<float>;
template struct HostLinear<double>;

}  // namespace dflop::DFLOP_HOST_TARGET
