// All modules are made of these layers: linear layers, activations and norms.
#pragma once

#include <string>

#include "backend/model/parameter_store.hpp"
#include "backend/model/tensor.hpp"
#include "core/architecture.hpp"

namespace dflop {

/// A Split says how the weight of a linear layer is cut over tp: by rows each rank has some outputs, by
/// columns part of every output, and the parts are summed. A whole one is on every rank.
enum class Split : std::uint8_t { rows, columns, whole };

/// TpSums says which rows of a sum over tp a rank gets.
enum class TpSums : std::uint8_t {
  held,  ///< its shard under sequence parallelism, else all
  all,
};

/// A Linear layer is split over tp as its Split says. What is split takes all rows.
class Linear {
 public:
  /// Reads parameter `name` and, where `biased`, `name`.bias of the store, which outlives it.
  Linear(const std::string& name, bool biased, Split split, ParameterStore& store, const RankContext& rank,
         TpSums sums = TpSums::held);

  bool is_whole() const { return split_ == Split::whole; }
  /// Returns x W^T and the bias, summed over tp where the columns are split.
  Tensor forward(ConstMatrix x) const;
  /// Returns the gradient of the input, summed over tp where the rows are split.
  Tensor backward_input(ConstMatrix dy) const;
  /// Writes the gradient of the input into `dx`, and does not sum it.
  void backward_input_part(Matrix dx, ConstMatrix dy) const {
    rank_.kernels.linear_backward_input(dx, dy, store_.weight(weight_));
  }
  /// Adds to the gradients of weight and bias.
  void backward_weight(ConstMatrix dy, ConstMatrix x) const;

 private:
  ConstMatrix bias() const;
  /// Calls `multiply` with memory for its result and, where there is a `sum`, sums that over tp; `sum` is its
  /// name for messages.
  template <typename Multiply>
  Tensor product(std::int64_t rows, std::int64_t columns, const char* sum, const Multiply& multiply) const;

  ParameterStore& store_;
  const RankContext& rank_;
  Split split_;
  TpSums sums_;
  const Parameter& weight_;
  const Parameter* bias_;
};

/// A NormTape keeps a norm's input and statistics until its backward, and its output until whoever reads that
/// frees it.
struct NormTape {
  Tensor x;
  SumTensor statistics;
  Tensor out;
};

/// Computes y = activation(x).
void apply(Kernels& kernels, Activation activation, Matrix y, ConstMatrix x);
/// Computes dx, the gradient of apply() at x, of dy.
void apply_backward(Kernels& kernels, Activation activation, Matrix dx, ConstMatrix dy, ConstMatrix x);

/// A Norm is a layer norm, or without beta an RMS norm.
class Norm {
 public:
  Norm(const std::string& name, NormKind kind, double epsilon, ParameterStore& store,
       const RankContext& rank);

  /// Computes the tape's output from its input, to which it first adds `added`, if any.
  void forward(NormTape& tape, ConstMatrix added = {}) const;
  /// Returns the gradient of the tape's input, which it frees with the statistics, plus `added`, if any, and
  /// adds to the gradients of the weights. These come with it where backwards are split, too: they cost
  /// little, and nobody then keeps for them what only they would read.
  Tensor backward(ConstMatrix dy, NormTape& tape, ConstMatrix added = {}) const;

 private:
  ParameterStore& store_;
  const RankContext& rank_;
  const Parameter& gamma_;
  const Parameter* beta_;
  double epsilon_;
};

}  // namespace dflop
