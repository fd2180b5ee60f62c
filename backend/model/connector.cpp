#include "backend/model/connector.hpp"

#include <string>

namespace dflop {

Connector::Connector(const ModelSpec& model, ParameterStore& store, const RankContext& rank)
    : merge_(model.connector.merge), rank_(rank), norm_("encoder.norm", true, store, rank) {
  for (std::size_t i = 0; i + 1 < model.connector.widths.size(); ++i) {
    linears_.emplace_back("connector." + std::to_string(i), true, i % 2 == 0 ? Split::rows : Split::columns,
                          store, rank, TpSums::all);
  }
}

AllRows Connector::all_normed(const ConnectorTape& tape) const {
  return {rank_, tape.norm.out, tape.rows, "the rows of the connector"};
}

ConstMatrix Connector::merged(ConstMatrix rows) const {
  return {rows.data, rows.rows / merge_, rows.columns * merge_};
}

Tensor Connector::forward(Tensor x, const EncoderInput& input, ConnectorTape& tape) const {
  tape.rows = input.rows();
  tape.norm.x = std::move(x);
  norm_.forward(tape.norm);
  tape.outputs.push_back(linears_.front().forward(merged(all_normed(tape))));
  for (std::size_t i = 1; i < linears_.size(); ++i) {
    tape.inputs.emplace_back(rank_, tape.outputs.back().rows(), tape.outputs.back().columns());
    rank_.kernels.gelu(tape.inputs.back(), tape.outputs.back());
    tape.outputs.push_back(linears_[i].forward(tape.inputs.back()));
  }
  tape.pool_begin = IndexTensor(rank_, input.pool_begin);
  tape.pool_end = IndexTensor(rank_, input.pool_end);
  Tensor out(rank_, tape.pool_begin.size(), tape.outputs.back().columns());
  rank_.kernels.pool_rows(out, tape.outputs.back(), tape.pool_begin, tape.pool_end);
  return out;
}

Tensor Connector::backward_input(const Tensor& d_out, ConnectorTape& tape) const {
  tape.gradients.resize(linears_.size());
  for (std::size_t i = linears_.size(); i-- > 0;) {
    Tensor& gradient = tape.gradients[i];
    gradient = Tensor(rank_, tape.outputs[i].rows(), tape.outputs[i].columns());
    if (i + 1 == linears_.size()) {
      rank_.kernels.zero(Matrix(gradient));
      rank_.kernels.pool_rows_backward(gradient, d_out, tape.pool_begin, tape.pool_end);
    } else {
      const Tensor d_activated = linears_[i + 1].backward_input(tape.gradients[i + 1]);
      rank_.kernels.gelu_backward(gradient, d_activated, tape.outputs[i]);
    }
    tape.outputs[i] = {};
  }
  tape.pool_begin = {};
  tape.pool_end = {};
  // The layer does not sum it: shards are of rows before they are merged.
  Tensor d_normed = tp_summand(rank_, tape.rows, tape.norm.x.columns());
  const ConstMatrix& gradient = tape.gradients.front();
  linears_.front().backward_input_part({d_normed.view().data, gradient.rows, merge_ * d_normed.columns()},
                                       gradient);
  d_normed = tp_shard_sum(rank_, std::move(d_normed), "the parts of the connector's input gradient");
  return norm_.backward(d_normed, tape.norm);
}

void Connector::backward_weight(ConnectorTape& tape) const {
  linears_.front().backward_weight(tape.gradients.front(), merged(all_normed(tape)));
  for (std::size_t i = 1; i < linears_.size(); ++i) {
    linears_[i].backward_weight(tape.gradients[i], tape.inputs[i - 1]);
  }
  tape = {};
}

}  // namespace dflop
