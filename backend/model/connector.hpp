// The encoder ends here: its last norm, the connector's MLP, and the means that become tokens of the LLM.
#pragma once

#include <vector>

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"
#include "backend/model/tp_rows.hpp"
#include "core/model.hpp"

namespace dflop {

/// A ConnectorTape has what the connector keeps of a microbatch; between the parts of a backward gradients in
/// the place of outputs, and neither its input nor statistics.
struct ConnectorTape {
  NormTape norm;                ///< of the rows that the rank holds
  std::vector<Tensor> inputs;   ///< of each linear layer after the first
  std::vector<Tensor> outputs;  ///< of each before its GELU
  IndexTensor pool_begin;
  IndexTensor pool_end;
  std::vector<Tensor> gradients;  ///< of each linear layer's output
  std::int64_t rows = 0;          ///< that come in, on all tp ranks together
};

/// A Connector ends the encoder and makes tokens of the LLM. Its linear layers are split over tp by twos.
class Connector {
 public:
  Connector(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Takes the rows of [rows, encoder width] that the rank holds and returns [LLM tokens, LLM width], which
  /// all tp ranks have.
  Tensor forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const;
  /// Returns the gradient of x and adds to those of the norm's parameters; backward_weight() to all others.
  Tensor backward_input(const Tensor& d_out, ConnectorTape& tape) const;
  void backward_weight(ConnectorTape& tape) const;

 private:
  AllRows all_normed(const ConnectorTape& tape) const;
  /// Returns the same memory with `merge` rows side by side in each row.
  ConstMatrix merged(ConstMatrix rows) const;

  int merge_;
  const RankContext& rank_;
  Norm norm_;
  std::vector<Linear> linears_;
};

}  // namespace dflop
