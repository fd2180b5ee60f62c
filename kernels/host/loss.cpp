#include <algorithm>
#include <cmath>

#include "kernels/host/matrix.hpp"

namespace dflop::DFLOP_HOST_TARGET {
namespace {

// These are the columns of the parts.
constexpr Index kLargest = 0;
constexpr Index kSum = 1;
constexpr Index kTarget = 2;

template <typename T>
void cross_entropy_parts(Sums parts, ConstMatrix logits, Indices targets, std::int64_t first) {
  const auto in = view<T>(logits).array();
  auto out = view<T>(parts);
  for (Index row = 0; row < in.rows(); ++row) {
    const T largest = in.row(row).maxCoeff();
    const Index target = targets.host[static_cast<std::size_t>(row)] - first;
    out(row, kLargest) = largest;
    out(row, kSum) = (in.row(row) - largest).exp().sum();
    out(row, kTarget) = target >= 0 && target < in.cols() ? in(row, target) : T(0);
  }
}

template <typename T>
void cross_entropy_merge(Sums merged, ConstSums parts, int ranks) {
  const auto in = view<T>(parts);
  auto out = view<T>(merged);
  const Index rows = out.rows();
  for (Index row = 0; row < rows; ++row) {
    T largest = in(row, kLargest);
    for (int rank = 1; rank < ranks; ++rank) largest = std::max(largest, in(rank * rows + row, kLargest));
    T sum = 0;
    T target = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto part = in.row(rank * rows + row);
      sum += part(kSum) * std::exp(part(kLargest) - largest);
      target += part(kTarget);
    }
    out.row(row) << largest, sum, target;
  }
}

template <typename T>
void cross_entropy_backward(Matrix logits, Sums loss, ConstSums merged, Indices targets, std::int64_t first,
                            double weight) {
  auto values = view<T>(logits).array();
  const auto in = view<T>(merged);
  double total = 0.0;
  for (Index row = 0; row < values.rows(); ++row) {
    if (targets.host[static_cast<std::size_t>(row)] < 0) {
      values.row(row).setZero();
      continue;
    }
    const T sum = in(row, kSum);
    total += static_cast<double>(std::log(sum) + (in(row, kLargest) - in(row, kTarget)));
    const T factor = static_cast<T>(weight) / sum;
    values.row(row) = (values.row(row) - in(row, kLargest)).exp() * factor;
    const Index target = targets.host[static_cast<std::size_t>(row)] - first;
    if (target >= 0 && target < values.cols()) values(row, target) -= static_cast<T>(weight);
  }
  view<T>(loss)(0, 0) += static_cast<T>(weight * total);
}

}  // namespace

void set_loss(Kernels& kernels) {
  with_type(kernels, [&](auto type) {
    using T = decltype(type);
    kernels.cross_entropy_parts.set<cross_entropy_parts<T>>();
    kernels.cross_entropy_merge.set<cross_entropy_merge<T>>();
    kernels.cross_entropy_backward.set<cross_entropy_backward<T>>();
  });
}

}  // namespace dflop::DFLOP_HOST_TARGET
