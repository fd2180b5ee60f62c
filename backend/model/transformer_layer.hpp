// This header declares transformer layers with an explicit backward. A layer has two halves: norm and
// attention, then norm and MLP. The result of each half is added to its input. The module's LayerForm sets
// the kinds of norms, biases, activations and positions.
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

/// Returns the shape of the attention that one tp rank computes. Each rank has an equal share of the heads.
inline AttentionShape attention_shape(const TransformerSpec& spec, const RankContext& rank) {
  return {spec.heads / rank.tp_size(), spec.kv_heads / rank.tp_size(), spec.head_dim, spec.causal};
}

/// HeadBlocks are the places of queries, keys and values in a packed projection. Its rows are cut into blocks
/// that have one norm each, of one head or of all heads, and are numbered row by row.
struct HeadBlocks {
  IndexTensor queries;
  IndexTensor keys;
  IndexTensor values;
};

/// PackedSequences are PackedRows in device memory.
struct PackedSequences {
  IndexTensor offsets;
  IndexTensor windows;  ///< only for modules with layers that attend within windows
  Turns turns;          ///< only for modules with rotary positions
  HeadBlocks heads;     ///< only for modules with norms of queries and keys
  std::int64_t rows = 0;
};

/// A SequencePacker turns the PackedRows of one module's microbatches into PackedSequences.
class SequencePacker {
 public:
  /// Makes the packer of a module. `spec` must outlive it.
  explicit SequencePacker(const TransformerSpec& spec);
  /// Extends the data that microbatches share, such as the table of rotations, to cover these rows.
  void prepare(const RankContext& rank, const PackedRows& packed) {
    if (turns_) turns_->prepare(rank, packed.positions);
  }
  PackedSequences operator()(const RankContext& rank, const PackedRows& packed);

 private:
  const TransformerSpec& spec_;
  QkNormKind qk_norm_;
  std::optional<TurnTable> turns_;
};

/// A QkNormTape keeps the tapes of the norms of queries and keys until their backward.
struct QkNormTape {
  NormTape queries;
  NormTape keys;
};

/// A QkNorm computes RMS norms of queries and keys, in the form's QkNormKind. Norms over all heads need all
/// heads on one rank, so tp must be 1, and as many query heads as key heads.
class QkNorm {
 public:
  QkNorm(const std::string& name, const LayerForm& form, const AttentionShape& shape, ParameterStore& store,
         const RankContext& rank);

  Tensor forward(Tensor qkv, const HeadBlocks& blocks, QkNormTape& tape) const;
  Tensor backward(Tensor d_qkv, const HeadBlocks& blocks, QkNormTape& tape) const;

 private:
  /// Returns some blocks of a packed projection, one in each row.
  Tensor part(const Tensor& qkv, const IndexTensor& blocks) const;
  /// Returns the packed projection of queries, keys and values.
  Tensor packed(const Tensor& queries, const Tensor& keys, const Tensor& values,
                const HeadBlocks& blocks) const;

  const RankContext& rank_;
  std::int64_t width_;    // of a block
  std::int64_t columns_;  // of a packed projection
  Norm queries_;
  Norm keys_;
};

/// A LayerTape keeps the tensors of a layer for one microbatch, from the forward until the backward frees
/// them. Inputs, outputs and results of norms have the rows that the rank holds; all other tensors have all
/// rows. In a split backward, the input part replaces tensors by their gradients and frees statistics. Until
/// the weight part, a layer then holds at most as much memory as after its forward without recomputation (Qi
/// et al. 2023, "Zero Bubble Pipeline Parallelism": W needs about as much memory as B).
struct LayerTape {
  NormTape norm1;  ///< norm of the layer's input
  QkNormTape qk_norm;
  Tensor qkv;       ///< queries, keys and values, after rotation
  Tensor heads;     ///< the output of attention
  Tensor attended;  ///< result of this half, if the layer has scales
  SumTensor attention_statistics;
  NormTape norm2;  ///< norm of the input plus the result of attention
  Tensor up;
  Tensor activated;
  Tensor mlp;  ///< result of this half, if the layer has scales
  // The members from d_out to d_qkv are gradients, kept from the input part of a backward to its weight
  // part.
  Tensor d_out;  ///< gradient of the MLP's result
  AllRows d_out_all;
  Tensor d_up;
  Tensor d_x1;  ///< gradient of attention's result
  AllRows d_x1_all;
  Tensor d_qkv;

  /// Frees the gathered rows of gradients, so that the rank keeps only its own rows. The weight part gathers
  /// them again.
  void drop_gathered() {
    d_out_all = {};
    d_x1_all = {};
  }
};

/// A TransformerLayer computes one layer of a module.
class TransformerLayer {
 public:
  /// Makes layer number `place` of a module, with parameters named "<module>.layers.<place>". All referenced
  /// objects must outlive this object.
  TransformerLayer(const TransformerSpec& spec, Recomputation recomputation, const std::string& module,
                   int place, ParameterStore& store, const RankContext& rank);

  /// Stores the input in the tape and returns the output. With recomputation, the tape keeps fewer tensors.
  Tensor forward(Tensor x, const PackedSequences& sequences, LayerTape& tape) const;

  /// Returns the gradient of the input for the output gradient `d_out`, and adds to the gradients of the
  /// norms' parameters. Afterwards the tape holds only the tensors that backward_weight() reads.
  Tensor backward_input(Tensor d_out, const PackedSequences& sequences, LayerTape& tape) const;

  /// Adds to the gradients of all parameters except the norms', and frees the tape.
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

/// A StackTape keeps the tapes of a TransformerStack for one microbatch.
struct StackTape {
  PackedSequences sequences;  ///< must be set before the forward
  std::vector<LayerTape> layers;
};

/// A LayerHook is called with the index of a layer in its stack and with its output, or the gradient of its
/// output, which it may change.
using LayerHook = std::function<void(int layer, Tensor& tensor)>;

/// A TransformerStack has the layers of one module that a stage holds.
class TransformerStack {
 public:
  /// Makes the layers `first` to `first` + `count` - 1 of a module, with parameters named
  /// "<module>.layers.<index>".
  TransformerStack(const TransformerSpec& spec, Recomputation recomputation, const std::string& module,
                   int first, int count, ParameterStore& store, const RankContext& rank);

  bool empty() const { return layers_.empty(); }
  /// Returns the output of the last layer. If `seen` is set, calls it after each layer.
  Tensor forward(Tensor x, StackTape& tape, const LayerHook& seen = {}) const;
  /// Returns the gradient of the input. With `weights`, each layer also adds to the gradients of its
  /// parameters right away and then frees its tape; without, backward_weight() does this later. If `after`
  /// is set, calls it after each layer, with the layer's index in the stack; if `before` is set, calls it
  /// before each layer.
  Tensor backward(Tensor d_out, bool weights, StackTape& tape,
                  const std::function<void(int layer)>& after = {}, const LayerHook& before = {}) const;
  void backward_weight(StackTape& tape) const {
    for (std::size_t i = layers_.size(); i-- > 0;) layers_[i].backward_weight(tape.layers[i]);
  }

 private:
  std::vector<TransformerLayer> layers_;
};

}  // namespace dflop
