// This file defines the linear layers and sets the operations of all themes.
#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

template <typename T>
void linear(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  auto out = view<T>(y);
  product_transposed(part(out), T(1), const_part(view<T>(x)), const_part(view<T>(weight)));
  if (bias.columns > 0) out.rowwise() += view<T>(bias).row(0);
}

template <typename T>
void linear_backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  product(part(view<T>(dx)), T(1), const_part(view<T>(dy)), const_part(view<T>(weight)));
}

template <typename T>
void linear_backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x, Beta beta) {
  const auto gradient = view<T>(dy);
  if (beta == Beta::zero) view<T>(dweight).setZero();
  add_transposed_product(part(view<T>(dweight)), T(1), const_part(gradient), const_part(view<T>(x)));
  if (dbias.columns == 0) return;
  auto sum = view<T>(dbias).row(0);
  for (Index row = 0; row < gradient.rows(); ++row) sum += gradient.row(row);
}

}  // namespace

void set_linear(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.linear.set<linear<T>>();
    kernels.linear_backward_input.set<linear_backward_input<T>>();
    kernels.linear_backward_weight.set<linear_backward_weight<T>>();
  });
}

void add_linear(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.linear.add<linear<T>>(DFLOP_HOST_TARGET_NAME);
    kernels.linear_backward_input.add<linear_backward_input<T>>(DFLOP_HOST_TARGET_NAME);
    kernels.linear_backward_weight.add<linear_backward_weight<T>>(DFLOP_HOST_TARGET_NAME);
  });
}

/// Sets all operations, for the kernels' precision: f32 or f64. Without `own`, the kernels already have the
/// operations of a narrower target, and only get this target's linear layers as variants. In both cases, adds
/// the tiled operations as variants.
void add_operations(Kernels& kernels, bool own) {
  if (own) {
    set_linear(kernels);
    set_norms(kernels);
    set_activations(kernels);
    set_attention(kernels);
    set_rows(kernels);
    set_loss(kernels);
    set_elementwise(kernels);
    set_unpack(kernels);
  } else {
    add_linear(kernels);
  }
  add_tiled_attention(kernels);
  add_tiled_activations(kernels);
}

}  // namespace dflop::DFLOP_HOST_TARGET
