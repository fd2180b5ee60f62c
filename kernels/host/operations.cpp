#include "kernels/host/target.hpp"

namespace dflop::DFLOP_HOST_TARGET {

/// Sets all operations, for the kernels' precision: f32 or f64.
void set_operations(Kernels& kernels) {
  set_linear(kernels);
  set_norms(kernels);
  set_activations(kernels);
  set_attention(kernels);
  set_rows(kernels);
  set_loss(kernels);
  set_elementwise(kernels);
}

}  // namespace dflop::DFLOP_HOST_TARGET
