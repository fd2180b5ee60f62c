// Transformer layers have an explicit backward; each is norm, attention, norm, MLP, each half added to its
// input. What norms, biases, activations and positions are, the module's LayerForm says.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/model/linear.hpp"
#include "backend/model/packed_rows.hpp"
#include "backend/model/tensor.hpp"
#include "backend/model/turns.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// Returns the attention that a tp rank computes: its share of the heads.
inline AttentionShape attention_shape(const TransformerSpec& spec, const RankContext& rank) {
  return {spec.heads / rank.tp_size(), spec.kv_heads / rank.tp_size(), spec.head_dim, spec.causal};
}

/// PackedSequences are PackedRows in device memory.
struct PackedSequences {
  IndexTensor offsets;
  IndexTensor windows;  ///< of modules with layers that attend within windows
  Turns turns;          ///< of modules with rotary positions
  std::int64_t rows = 0;
};

/// A SequencePacker takes the rows of one module's microbatches to device memory.
class SequencePacker {
 public:
  explicit SequencePacker(const TransformerSpec& spec);
  /// Has what is kept from one microbatch to the next ready for these rows.
  void prepare(const RankContext& rank, const PackedRows& packed) {
    if (turns_) turns_->prepare(rank, packed.positions);
  }
  PackedSequences operator()(const RankContext& rank, const PackedRows& packed);

 private:
  std::optional<TurnTable> turns_;
};

/// A QkNormTape keeps what the norms of queries and keys need until their backward.
struct QkNormTape {
  NormTape queries;
  NormTape keys;
};

/// A QkNorm takes the RMS norm of the queries of all heads together, and of the keys (InternViT-6B). It is on
/// whole heads: tp is 1, and there are as many key heads as query heads.
class QkNorm {
 public:
  QkNorm(const std::string& name, double epsilon, ParameterStore& store, const RankContext& rank);

  Tensor forward(Tensor qkv, QkNormTape& tape) const;
  Tensor backward(Tensor d_qkv, QkNormTape& tape) const;

 private:
  /// Returns the queries (0), keys (1) or values (2) of a packed projection.
  Tensor third(const Tensor& qkv, int which) const;
  /// Returns the packed projection of the three.
  Tensor packed(const Tensor& queries, const Tensor& keys, const Tensor& values) const;

  const RankContext& rank_;
  Norm queries_;
  Norm keys_;
};

/// A LayerTape has what a layer keeps of a microbatch from its forward to the backward that frees it. Inputs,
/// outputs and what norms give are of the rows that the rank holds, all else is of all rows. Between the
/// parts of a backward gradients stand in the place of what they are the gradients of, and of statistics
/// nothing is left. So a layer then holds no more than it keeps from its forward without recomputation (Qi et
/// al. 2023, "Zero Bubble Pipeline Parallelism": the memory of W is about that of B).
struct LayerTape {
  NormTape norm1;  ///< of the layer's input
  QkNormTape qk_norm;
  Tensor qkv;       ///< turned
  Tensor heads;     ///< what attention gives
  Tensor attended;  ///< its half's result, where layers are scaled
  SumTensor attention_statistics;
  NormTape norm2;  ///< of what attention and the input are together
  Tensor up;
  Tensor activated;
  Tensor mlp;  ///< its half's result, where layers are scaled
  // These are gradients, from the input part of a backward to its weight part.
  Tensor d_out;  ///< of the MLP's result
  AllRows d_out_all;
  Tensor d_up;
  Tensor d_x1;  ///< of attention's result
  AllRows d_x1_all;
  Tensor d_qkv;

  /// Frees what a weight part that comes later gathers again: the rank keeps its rows alone until then.
  void drop_gathered() {
    d_out_all = {};
    d_x1_all = {};
  }
};

/// A TransformerLayer computes one layer of a module.
class TransformerLayer {
 public:
  /// Makes layer `place` of a module, whose parameters are named "<module>.layers.<place>". What is referred
  /// to outlives it.
  TransformerLayer(const TransformerSpec& spec, Recomputation recomputation, const std::string& module,
                   int place, ParameterStore& store, const RankContext& rank);

  /// Takes the input into the tape and returns the output. With recomputation the tape keeps less.
  Tensor forward(Tensor x, const PackedSequences& sequences, LayerTape& tape) const;

  /// Returns the gradient of the input from that of the output. The tape then has what backward_weight()
  /// reads, and nothing else. Adds to the gradients of the norms' parameters.
  Tensor backward_input(Tensor d_out, const PackedSequences& sequences, LayerTape& tape) const;

  /// Adds to the gradients of all other parameters and frees the tape.
  void backward_weight(LayerTape& tape) const;

 private:
  Tensor fill(const PackedSequences& sequences, LayerTape& tape, bool with_output) const;
  const IndexTensor& offsets(const PackedSequences& sequences) const {
    return windowed_ ? sequences.windows : sequences.offsets;
  }
  void attend(const PackedSequences& sequences, LayerTape& tape) const;
  void turn(Tensor& qkv, const PackedSequences& sequences, bool inverse) const;
  void activate(LayerTape& tape) const;
  Tensor activate_backward(const Tensor& d_activated, const LayerTape& tape) const;
  Tensor scaled(Tensor result, const Parameter* scale, Tensor& kept) const;
  Tensor scaled_backward(const Tensor& d_sum, const Parameter* scale, Tensor& kept) const;
  Tensor mlp_backward(Tensor d_out, const PackedSequences& sequences, LayerTape& tape) const;
  Tensor attention_backward(Tensor d_out, const PackedSequences& sequences, LayerTape& tape) const;
  AllRows all_rows(const Tensor& held, std::int64_t rows) const {
    return {rank_, held, rows, "the rows of a layer"};
  }

  TransformerLayer(const TransformerSpec& spec, const LayerForm& form, Recomputation recomputation,
                   const std::string& name, bool windowed, ParameterStore& store, const RankContext& rank);

  Activation activation_;
  bool rotary_;
  bool windowed_;
  Recomputation recomputation_;
  ParameterStore& store_;
  const RankContext& rank_;
  AttentionShape attention_;
  const Parameter* scale1_;
  const Parameter* scale2_;
  Norm norm1_;
  Linear qkv_;
  std::optional<QkNorm> qk_norm_;
  Linear attention_out_;
  Norm norm2_;
  Linear up_;
  Linear down_;
};

/// A StackTape has what a TransformerStack keeps of a microbatch.
struct StackTape {
  PackedSequences sequences;  ///< to be set before the forward
  std::vector<LayerTape> layers;
};

/// A TransformerStack has the layers of one module that a stage holds.
class TransformerStack {
 public:
  /// Makes `count` layers whose parameters are named "<module>.layers.<first>" and so on.
  TransformerStack(const TransformerSpec& spec, Recomputation recomputation, const std::string& module,
                   int first, int count, ParameterStore& store, const RankContext& rank);

  bool empty() const { return layers_.empty(); }
  Tensor forward(Tensor x, StackTape& tape) const;
  /// Returns the gradient of the input; with `weights` each layer adds to those of its parameters at once,
  /// which frees its memory, else backward_weight() does. Calls `after`, if there is one, with the place in
  /// the stack of each layer that is done.
  Tensor backward(Tensor d_out, bool weights, StackTape& tape,
                  const std::function<void(int layer)>& after = {}) const;
  void backward_weight(StackTape& tape) const {
    for (std::size_t i = layers_.size(); i-- > 0;) layers_[i].backward_weight(tape.layers[i]);
  }

 private:
  std::vector<TransformerLayer> layers_;
};

}  // namespace dflop
