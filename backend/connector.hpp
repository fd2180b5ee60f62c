// The end of the encoder: its last norm, the connector's MLP, and the means that become tokens of the LLM.
#pragma once

#include <vector>

#include "backend/linear.hpp"
#include "backend/microbatch.hpp"
#include "core/model.hpp"

namespace dflop {

/// What the connector keeps of a microbatch.
struct ConnectorTape {
  Tensor x;
  SumTensor statistics;
  Tensor normed;
  std::vector<Tensor> inputs;   ///< of each linear layer after the first
  std::vector<Tensor> outputs;  ///< of each before its GELU
  IndexTensor pool_begin;
  IndexTensor pool_end;
  std::vector<Tensor> gradients;  ///< of each linear layer's output
  Tensor d_normed;
};

class Connector {
 public:
  Connector(const ModelSpec& model, ParameterStore& store, const RankContext& rank);

  /// [rows, encoder width] to [LLM tokens, LLM width].
  Tensor forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const;
  Tensor backward_input(const Tensor& d_out, ConnectorTape& tape) const;
  void backward_weight(ConnectorTape& tape) const;

 private:
  /// The normed rows, `merge` of them side by side.
  ConstMatrix merged(const ConnectorTape& tape) const;
  ConstMatrix input_of(std::size_t linear, const ConnectorTape& tape) const;

  int merge_;
  const RankContext& rank_;
  Norm norm_;
  std::vector<Linear> linears_;
};

}  // namespace dflop
