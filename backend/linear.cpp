#include "backend/linear.hpp"

namespace dflop {
namespace {

constexpr double kEpsilon = 1e-5;

ConstMatrix as_row(Matrix m) {
  return {m.data, 1, m.size()};
}
Sums as_row(Sums s) {
  return {s.data, 1, s.size()};
}

}  // namespace

Linear::Linear(const std::string& name, bool biased, Split split, ParameterStore& store,
               const RankContext& rank)
    : store_(store),
      rank_(rank),
      split_(split),
      weight_(store.find(name)),
      bias_(biased ? &store.find(name + ".bias") : nullptr) {}

/// Where the parts of an output are summed over tp, one of them has the bias in it.
ConstMatrix Linear::bias() const {
  const bool mine = split_ == Split::rows || rank_.tp_rank == 0;
  return bias_ != nullptr && mine ? as_row(store_.weight(*bias_)) : ConstMatrix{};
}

Tensor Linear::forward(ConstMatrix x) const {
  Tensor y(rank_, x.rows, weight_.held_rows());
  rank_.kernels.linear(y, x, store_.weight(weight_), bias());
  if (split_ == Split::columns) tp_all_reduce(rank_, y, "the parts of a linear layer's output");
  return y;
}

Tensor Linear::backward_input(ConstMatrix dy) const {
  Tensor dx(rank_, dy.rows, weight_.held_columns());
  rank_.kernels.linear_backward_input(dx, dy, store_.weight(weight_));
  if (split_ == Split::rows) tp_all_reduce(rank_, dx, "the parts of a linear layer's input gradient");
  return dx;
}

void Linear::backward_weight(ConstMatrix dy, ConstMatrix x) const {
  const Sums none{};
  rank_.kernels.linear_backward_weight(store_.gradient(weight_),
                                       bias_ != nullptr ? as_row(store_.gradient(*bias_)) : none, dy, x);
}

Norm::Norm(const std::string& name, bool biased, ParameterStore& store, const RankContext& rank)
    : store_(store),
      rank_(rank),
      gamma_(store.find(name + ".gamma")),
      beta_(biased ? &store.find(name + ".beta") : nullptr) {}

Tensor Norm::forward(ConstMatrix x, SumTensor& statistics) const {
  Tensor y(rank_, x.rows, x.columns);
  statistics = SumTensor(rank_, x.rows, beta_ != nullptr ? 2 : 1);
  if (beta_ != nullptr) {
    rank_.kernels.layer_norm(y, statistics, x, store_.weight(gamma_), store_.weight(*beta_), kEpsilon);
  } else {
    rank_.kernels.rms_norm(y, statistics, x, store_.weight(gamma_), kEpsilon);
  }
  return y;
}

void Norm::backward(Matrix dx, bool weights, ConstMatrix dy, ConstMatrix x, ConstSums statistics) const {
  const Sums none{};
  const Sums d_gamma = weights ? store_.gradient(gamma_) : none;
  if (beta_ != nullptr) {
    const Sums d_beta = weights ? store_.gradient(*beta_) : none;
    rank_.kernels.layer_norm_backward(dx, d_gamma, d_beta, dy, x, store_.weight(gamma_), statistics);
  } else {
    rank_.kernels.rms_norm_backward(dx, d_gamma, dy, x, store_.weight(gamma_), statistics);
  }
}

Tensor Norm::backward_input(ConstMatrix dy, ConstMatrix x, ConstSums statistics) const {
  Tensor dx(rank_, x.rows, x.columns);
  backward(dx, false, dy, x, statistics);
  return dx;
}

void Norm::backward_weight(ConstMatrix dy, ConstMatrix x, ConstSums statistics) const {
  backward(Matrix{nullptr, x.rows, x.columns}, true, dy, x, statistics);
}

}  // namespace dflop
