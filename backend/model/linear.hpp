// All modules are made of these layers: linear layers, activations and norms.
#pragma once

#include <string>

#include "backend/model/parameter_store.hpp"
#include "backend/model/tensor.hpp"
#include "core/architecture.hpp"

namespace dflop {

/// A Split says how the weight of a linear layer is split over tp. If its rows are split, each rank computes
/// some of the outputs. If its columns are split, each rank computes a summand of every output, and the
/// summands are added up. If it is whole, every rank has the complete weight.
enum class Split : std::uint8_t { rows, columns, whole };

/// When a layer's results are summed over tp, TpSums says which rows of the sum each rank gets.
enum class TpSums : std::uint8_t {
  held,  ///< with sequence parallelism its shard of the rows, else all rows
  all,
};

/// A Linear layer is split over tp according to its Split. A split layer takes all rows as input.
class Linear {
 public:
  /// Uses the store's parameter `name` and, if `biased`, its parameter "<name>.bias". The store must outlive
  /// this object.
  Linear(const std::string& name, bool biased, Split split, ParameterStore& store, const RankContext& rank,
         TpSums sums = TpSums::held);

  bool is_whole() const { return split_ == Split::whole; }
  /// Returns x W^T + bias, summed over tp if the columns are split.
  Tensor forward(ConstMatrix x) const;
  /// Returns the gradient of the input for the output gradient `dy`, summed over tp if the rows are split.
  Tensor backward_input(ConstMatrix dy) const;
  /// Writes this rank's part of the gradient of the input into `dx`, without summing over tp.
  void backward_input_part(Matrix dx, ConstMatrix dy) const {
    rank_.kernels.linear_backward_input(dx, dy, store_.weight(weight_));
  }
  /// Adds to the gradients of weight and bias, for the output gradient `dy` and the input `x`.
  void backward_weight(ConstMatrix dy, ConstMatrix x) const;

 private:
  ConstMatrix bias() const;
  /// Calls `multiply` with memory for its result, [rows, columns]. If `sum` is not null, also sums the
  /// result over tp; messages call that sum by the name `sum`.
  template <typename Multiply>
  Tensor product(std::int64_t rows, std::int64_t columns, const char* sum, const Multiply& multiply) const;

  ParameterStore& store_;
  const RankContext& rank_;
  Split split_;
  TpSums sums_;
  const Parameter& weight_;
  const Parameter* bias_;
};

/// A NormTape keeps the input and statistics of a norm until its backward. It keeps the output until the
/// code that reads the output frees it.
struct NormTape {
  Tensor x;
  SumTensor statistics;
  Tensor out;
};

/// Computes y = activation(x).
void apply(Kernels& kernels, Activation activation, Matrix y, ConstMatrix x);
/// Computes dx, the gradient of apply()'s input x for the output gradient dy.
void apply_backward(Kernels& kernels, Activation activation, Matrix dx, ConstMatrix dy, ConstMatrix x);

/// A Norm is a layer norm or, without beta, an RMS norm.
class Norm {
 public:
  Norm(const std::string& name, NormKind kind, double epsilon, ParameterStore& store,
       const RankContext& rank);

  /// Computes the tape's output from its input. If `added` is not empty, first adds it to the input.
  void forward(NormTape& tape, ConstMatrix added = {}) const;
  /// Returns the gradient of the tape's input, plus `added` if that is not empty. Also adds to the gradients
  /// of the weights, and frees the tape's input and statistics. Computes weight gradients even if backwards
  /// are split into input and weight parts: they cost little, and otherwise the tape would have to keep data
  /// for them.
  Tensor backward(ConstMatrix dy, NormTape& tape, ConstMatrix added = {}) const;

 private:
  ParameterStore& store_;
  const RankContext& rank_;
  const Parameter& gamma_;
  const Parameter* beta_;
  double epsilon_;
};

}  // namespace dflop
