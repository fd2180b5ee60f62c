// Linear layers as in kernels/cuda/linear.cpp when the library has no algorithm: plain products.
#include "kernels/cuda/themes.hpp"

namespace dflop::cuda {
namespace {

void linear(const CudaTarget& target, Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias) {
  plain_product(target, "linear",
                {x.rows,
                 weight.rows,
                 x.columns,
                 x.data,
                 {x.columns, 1},
                 weight.data,
                 {1, weight.columns},
                 y.data,
                 bias.columns > 0 ? bias.data : nullptr});
}

void linear_backward_input(const CudaTarget& target, Matrix dx, ConstMatrix dy, ConstMatrix weight) {
  plain_product(target, "linear_backward_input",
                {dy.rows,
                 weight.columns,
                 dy.columns,
                 dy.data,
                 {dy.columns, 1},
                 weight.data,
                 {weight.columns, 1},
                 dx.data});
}

void linear_backward_weight(const CudaTarget& target, Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x,
                            Beta beta) {
  if (dy.rows == 0 && beta == Beta::one) return;
  constexpr const char* kOperation = "linear_backward_weight";
  plain_product(target, kOperation,
                {dy.columns,
                 x.columns,
                 dy.rows,
                 dy.data,
                 {1, dy.columns},
                 x.data,
                 {x.columns, 1},
                 dweight.data,
                 nullptr,
                 true,
                 beta});
  if (dbias.columns > 0) add_column_sums(target, kOperation, dbias, dy);
}

}  // namespace

std::shared_ptr<void> set_linear(Kernels& kernels, const CudaTarget& target, int) {
  kernels.linear.set<linear>(target);
  kernels.linear_backward_input.set<linear_backward_input>(target);
  kernels.linear_backward_weight.set<linear_backward_weight>(target);
  return nullptr;
}

}  // namespace dflop::cuda
