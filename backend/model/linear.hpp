// A linear layer that may be split over tp: by rows of its weight (each rank has some outputs) or by columns
// (each rank has part of every output, and the parts are summed). What is split takes all rows; sums over tp
// are as TpSums says.
#pragma once

#include <string>

#include "backend/model/parameters.hpp"
#include "backend/model/tensor.hpp"

namespace dflop {

enum class Split : std::uint8_t { rows, columns };

/// Which rows of a sum over tp a rank gets.
enum class TpSums : std::uint8_t {
  held,  ///< its shard under sequence parallelism, else all
  all,
};

class Linear {
 public:
  /// Reads parameter `name` and, where `biased`, `name`.bias of the store, which outlives it.
  Linear(const std::string& name, bool biased, Split split, ParameterStore& store, const RankContext& rank,
         TpSums sums = TpSums::held);

  /// Summed over tp where the columns are split.
  Tensor forward(ConstMatrix x) const;
  /// Of the input; summed over tp where the rows are split.
  Tensor backward_input(ConstMatrix dy) const;
  /// The same into memory, and not summed.
  void backward_input_part(Matrix dx, ConstMatrix dy) const;
  /// Adds to the gradients.
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

/// A layer norm, or without beta an RMS norm.
class Norm {
 public:
  Norm(const std::string& name, bool biased, ParameterStore& store, const RankContext& rank);

  Tensor forward(ConstMatrix x, SumTensor& statistics) const;
  /// Of the input; adds to the gradients. Those of the weights come with it where backwards are split, too:
  /// they cost little, and nobody then keeps for them what only they would read.
  Tensor backward(ConstMatrix dy, ConstMatrix x, ConstSums statistics) const;

 private:
  ParameterStore& store_;
  const RankContext& rank_;
  const Parameter& gamma_;
  const Parameter* beta_;
};

}  // namespace dflop
