#include "backend/model/linear.hpp"

#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

ConstMatrix as_row(Matrix m) {
  return {m.data, 1, m.size()};
}
Sums as_row(Sums s) {
  return {s.data, 1, s.size()};
}

}  // namespace

Linear::Linear(const std::string& name, bool biased, Split split, ParameterStore& store,
               const RankContext& rank, TpSums sums)
    : store_(store),
      rank_(rank),
      split_(split),
      sums_(sums),
      weight_(store.find(name)),
      bias_(biased ? &store.find(name + ".bias") : nullptr) {}

/// Returns the bias, on one rank only where the parts of an output are summed over tp.
ConstMatrix Linear::bias() const {
  const bool mine = split_ != Split::columns || rank_.tp_rank == 0;
  return bias_ != nullptr && mine ? as_row(store_.weight(*bias_)) : ConstMatrix{};
}

template <typename Multiply>
Tensor Linear::product(std::int64_t rows, std::int64_t columns, const char* sum,
                       const Multiply& multiply) const {
  const bool to_shards = sum != nullptr && sums_ == TpSums::held;
  Tensor product = to_shards ? tp_summand(rank_, rows, columns) : Tensor(rank_, rows, columns);
  multiply(rows_of(rank_, product.view(), 0, rows));
  if (to_shards) return tp_shard_sum(rank_, std::move(product), sum);
  if (sum != nullptr) tp_sum(rank_, product, sum);
  return product;
}

Tensor Linear::forward(ConstMatrix x) const {
  return product(x.rows, weight_.padded_rows(),
                 split_ == Split::columns ? "the parts of a linear layer's output" : nullptr,
                 [&](Matrix y) { rank_.kernels.linear(y, x, store_.weight(weight_), bias()); });
}

Tensor Linear::backward_input(ConstMatrix dy) const {
  return product(dy.rows, weight_.padded_columns(),
                 split_ == Split::rows ? "the parts of a linear layer's input gradient" : nullptr,
                 [&](Matrix dx) { backward_input_part(dx, dy); });
}

void Linear::backward_weight(ConstMatrix dy, ConstMatrix x) const {
  const Sums dbias = bias_ != nullptr ? as_row(store_.gradient_to_add_to(rank_, *bias_)) : Sums{};
  rank_.kernels.linear_backward_weight(store_.gradient(weight_), dbias, dy, x, store_.enter_product(weight_));
}

void apply(Kernels& kernels, Activation activation, Matrix y, ConstMatrix x) {
  switch (activation) {
    case Activation::gelu_tanh:
      return kernels.gelu(y, x);
    case Activation::gelu_erf:
      return kernels.gelu_erf(y, x);
    case Activation::gelu_quick:
      return kernels.gelu_quick(y, x);
    case Activation::swiglu:
      return kernels.swiglu(y, x);
  }
  throw Error(ErrorKind::internal, "expected an activation with a value, found none");
}

void apply_backward(Kernels& kernels, Activation activation, Matrix dx, ConstMatrix dy, ConstMatrix x) {
  switch (activation) {
    case Activation::gelu_tanh:
      return kernels.gelu_backward(dx, dy, x);
    case Activation::gelu_erf:
      return kernels.gelu_erf_backward(dx, dy, x);
    case Activation::gelu_quick:
      return kernels.gelu_quick_backward(dx, dy, x);
    case Activation::swiglu:
      return kernels.swiglu_backward(dx, dy, x);
  }
  throw Error(ErrorKind::internal, "expected an activation with a value, found none");
}

Norm::Norm(const std::string& name, NormKind kind, double epsilon, ParameterStore& store,
           const RankContext& rank)
    : store_(store),
      rank_(rank),
      gamma_(store.find(name + ".gamma")),
      beta_(kind == NormKind::layer ? &store.find(name + ".beta") : nullptr),
      epsilon_(epsilon) {}

void Norm::forward(NormTape& tape, ConstMatrix added) const {
  const Matrix x = tape.x;
  tape.out = Tensor(rank_, x.rows, x.columns);
  tape.statistics = SumTensor(rank_, x.rows, beta_ != nullptr ? 2 : 1);
  if (beta_ != nullptr) {
    rank_.kernels.layer_norm(tape.out, tape.statistics, x, added, store_.weight(gamma_),
                             store_.weight(*beta_), epsilon_);
  } else {
    rank_.kernels.rms_norm(tape.out, tape.statistics, x, added, store_.weight(gamma_), epsilon_);
  }
}

Tensor Norm::backward(ConstMatrix dy, NormTape& tape, ConstMatrix added) const {
  const ConstMatrix x = std::as_const(tape.x);
  Tensor dx(rank_, x.rows, x.columns);
  if (beta_ != nullptr) {
    rank_.kernels.layer_norm_backward(dx, store_.gradient_to_add_to(rank_, gamma_),
                                      store_.gradient_to_add_to(rank_, *beta_), dy, x, store_.weight(gamma_),
                                      tape.statistics, added);
  } else {
    rank_.kernels.rms_norm_backward(dx, store_.gradient_to_add_to(rank_, gamma_), dy, x,
                                    store_.weight(gamma_), tape.statistics, added);
  }
  tape.x = {};
  tape.statistics = {};
  return dx;
}

}  // namespace dflop
