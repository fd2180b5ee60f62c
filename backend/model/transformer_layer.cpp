#include "backend/model/transformer_layer.hpp"

namespace dflop {
TransformerLayer::TransformerLayer(const TransformerSpec& spec, Recomputation recomputation,
                                   const std::string& name, ParameterStore& store, const RankContext& rank)
    : spec_(spec),
      recomputation_(recomputation),
      rank_(rank),
      attention_(attention_shape(spec, rank)),
      norm1_(name + ".norm1", !spec.gated_mlp, store, rank),
      qkv_(name + ".qkv", !spec.gated_mlp, Split::rows, store, rank),
      attention_out_(name + ".attention_out", !spec.gated_mlp, Split::columns, store, rank),
      norm2_(name + ".norm2", !spec.gated_mlp, store, rank),
      up_(name + ".up", !spec.gated_mlp, Split::rows, store, rank),
      down_(name + ".down", !spec.gated_mlp, Split::columns, store, rank) {}

void TransformerLayer::attend(const PackedSequences& sequences, LayerTape& tape) const {
  tape.heads = Tensor(rank_, sequences.rows, attention_.out_columns());
  tape.attention_statistics = SumTensor(rank_, sequences.rows, attention_.heads);
  rank_.kernels.attention(tape.heads, tape.attention_statistics, tape.qkv, attention_, sequences.offsets);
}

/// Computes all of the tape from its input, and the output where that is asked for.
Tensor TransformerLayer::fill(const PackedSequences& sequences, LayerTape& tape, bool with_output) const {
  Kernels& kernels = rank_.kernels;
  norm1_.forward(tape.norm1);
  tape.qkv = qkv_.forward(all_rows(tape.norm1.out, sequences.rows));
  kernels.rope(tape.qkv, attention_, sequences.positions, kRopeBase, false);
  attend(sequences, tape);
  tape.norm2.x = attention_out_.forward(tape.heads);
  kernels.add(tape.norm2.x, tape.norm1.x);
  norm2_.forward(tape.norm2);
  tape.up = up_.forward(all_rows(tape.norm2.out, sequences.rows));
  tape.activated = Tensor(rank_, sequences.rows, tape.up.columns() / (spec_.gated_mlp ? 2 : 1));
  spec_.gated_mlp ? kernels.swiglu(tape.activated, tape.up) : kernels.gelu(tape.activated, tape.up);
  if (!with_output) return {};
  Tensor out = down_.forward(tape.activated);
  kernels.add(out, tape.norm2.x);
  return out;
}

Tensor TransformerLayer::forward(Tensor x, const PackedSequences& sequences, LayerTape& tape) const {
  tape.norm1.x = std::move(x);
  Tensor out = fill(sequences, tape, true);
  if (recomputation_ == Recomputation::full) {
    Tensor input = std::move(tape.norm1.x);
    tape = {};
    tape.norm1.x = std::move(input);
  } else if (recomputation_ == Recomputation::selective) {
    tape.heads = {};
    tape.attention_statistics = {};
  }
  return out;
}

/// Returns the gradient of the input of the MLP's half from that of its output.
Tensor TransformerLayer::mlp_backward(Tensor d_out, const PackedSequences& sequences, LayerTape& tape) const {
  Kernels& kernels = rank_.kernels;
  tape.d_out = std::move(d_out);
  tape.d_out_all = all_rows(tape.d_out, sequences.rows);
  {
    const Tensor d_activated = down_.backward_input(tape.d_out_all);
    tape.d_up = Tensor(rank_, sequences.rows, tape.up.columns());
    spec_.gated_mlp ? kernels.swiglu_backward(tape.d_up, d_activated, tape.up)
                    : kernels.gelu_backward(tape.d_up, d_activated, tape.up);
  }
  tape.up = {};
  Tensor d_x1 = norm2_.backward(up_.backward_input(tape.d_up), tape.norm2);
  kernels.add(d_x1, tape.d_out);
  return d_x1;
}

/// Returns the same of attention's half, whose output's gradient the tape has.
Tensor TransformerLayer::attention_backward(const PackedSequences& sequences, LayerTape& tape) const {
  Kernels& kernels = rank_.kernels;
  tape.d_x1_all = all_rows(tape.d_x1, sequences.rows);
  {
    const Tensor d_heads = attention_out_.backward_input(tape.d_x1_all);
    tape.d_qkv = Tensor(rank_, sequences.rows, attention_.qkv_columns());
    kernels.attention_backward(tape.d_qkv, d_heads, tape.heads, tape.attention_statistics, tape.qkv,
                               attention_, sequences.offsets);
  }
  tape.qkv = {};
  tape.attention_statistics = {};
  kernels.rope(tape.d_qkv, attention_, sequences.positions, kRopeBase, true);
  Tensor d_x = norm1_.backward(qkv_.backward_input(tape.d_qkv), tape.norm1);
  kernels.add(d_x, tape.d_x1);
  return d_x;
}

Tensor TransformerLayer::backward_input(Tensor d_out, const PackedSequences& sequences,
                                        LayerTape& tape) const {
  if (recomputation_ == Recomputation::full) fill(sequences, tape, false);
  if (recomputation_ == Recomputation::selective) attend(sequences, tape);
  tape.d_x1 = mlp_backward(std::move(d_out), sequences, tape);
  return attention_backward(sequences, tape);
}

void TransformerLayer::backward_weight(LayerTape& tape) const {
  const std::int64_t rows = tape.heads.rows();
  if (tape.d_out_all.empty()) tape.d_out_all = all_rows(tape.d_out, rows);
  if (tape.d_x1_all.empty()) tape.d_x1_all = all_rows(tape.d_x1, rows);
  down_.backward_weight(tape.d_out_all, tape.activated);
  up_.backward_weight(tape.d_up, all_rows(tape.norm2.out, rows));
  attention_out_.backward_weight(tape.d_x1_all, tape.heads);
  qkv_.backward_weight(tape.d_qkv, all_rows(tape.norm1.out, rows));
  tape = {};
}

TransformerStack::TransformerStack(const TransformerSpec& spec, Recomputation recomputation,
                                   const std::string& module, int first, int count, ParameterStore& store,
                                   const RankContext& rank) {
  for (int i = first; i < first + count; ++i) {
    layers_.emplace_back(spec, recomputation, module + ".layers." + std::to_string(i), store, rank);
  }
}

Tensor TransformerStack::forward(Tensor x, StackTape& tape) const {
  tape.layers.resize(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i].forward(std::move(x), tape.sequences, tape.layers[i]);
  }
  return x;
}

Tensor TransformerStack::backward(Tensor d_out, bool weights, StackTape& tape) const {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    d_out = layers_[i].backward_input(std::move(d_out), tape.sequences, tape.layers[i]);
    weights ? layers_[i].backward_weight(tape.layers[i]) : tape.layers[i].drop_gathered();
  }
  return d_out;
}

}  // namespace dflop
