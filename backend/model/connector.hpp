// The end of the encoder: its last norm, the connector's MLP, and the means that become tokens of the LLM.
#pragma once

#include <vector>

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"
#include "backend/model/tp_rows.hpp"
#include "core/model.hpp"

namespace dflop {

/// What the connector keeps of a microbatch; between the parts of a backward gradients in the place of
/// outputs, and neither its input nor statistics.
struct ConnectorTape {
  Tensor x;  ///< as `statistics` and `normed` of the rows that the rank holds
  SumTensor statistics;
  Tensor normed;
  std::vector<Tensor> inputs;   ///< of each linear layer after the first
  std::vector<Tensor> outputs;  ///< of each before its GELU
  IndexTensor pool_begin;
  IndexTensor pool_end;
  std::vector<Tensor> gradients;  ///< of each linear layer's output
  std::int64_t rows = 0;          ///< that come in, on all tp ranks together
};

class Connector {
 public:
  Connector(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// Of [rows, encoder width] those that the rank holds to [LLM tokens, LLM width], which all tp ranks have.
  Tensor forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const;
  /// Adds to the gradients of the norm's parameters; backward_weight() to all others.
  Tensor backward_input(const Tensor& d_out, ConnectorTape& tape) const;
  void backward_weight(ConnectorTape& tape) const;

 private:
  AllRows all_normed(const ConnectorTape& tape) const;
  /// `merge` rows side by side.
  ConstMatrix merged(ConstMatrix rows) const;

  int merge_;
  const RankContext& rank_;
  Norm norm_;
  std::vector<Linear> linears_;
};

}  // namespace dflop
