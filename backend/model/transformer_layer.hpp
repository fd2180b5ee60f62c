// Transformer layers have an explicit backward; each is norm, attention, norm, MLP, each half added to its
// input. LLM layers (gated_mlp) have RMS norms, SwiGLU and no biases; encoder layers have layer norms, GELU
// and biases. Queries and keys are turned by their positions in both.
#pragma once

#include <string>
#include <vector>

#include "backend/model/linear.hpp"
#include "backend/model/microbatch.hpp"
#include "backend/model/tensor.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"

namespace dflop {

inline constexpr double kRopeBase = 10'000;  ///< RoPE turns pair i by position * base^(-2i / head_dim)

/// Returns the attention that a tp rank computes: its share of the heads.
inline AttentionShape attention_shape(const TransformerSpec& spec, const RankContext& rank) {
  return {spec.heads / rank.tp_size(), spec.kv_heads / rank.tp_size(), spec.head_dim, spec.causal};
}

/// PackedSequences are PackedRows in device memory.
struct PackedSequences {
  PackedSequences() = default;
  PackedSequences(const RankContext& rank, const PackedRows& packed)
      : offsets(rank, packed.offsets), positions(rank, packed.positions), rows(packed.rows()) {}

  IndexTensor offsets;
  IndexTensor positions;
  std::int64_t rows = 0;
};

/// A LayerTape has what a layer keeps of a microbatch from its forward to the backward that frees it. Inputs,
/// outputs and what norms give are of the rows that the rank holds, all else is of all rows. Between the
/// parts of a backward gradients stand in the place of what they are the gradients of, and of statistics
/// nothing is left. So a layer then holds no more than it keeps from its forward without recomputation (Qi et
/// al. 2023, "Zero Bubble Pipeline Parallelism": the memory of W is about that of B).
struct LayerTape {
  NormTape norm1;  ///< of the layer's input
  Tensor qkv;      ///< turned
  Tensor heads;    ///< what attention gives
  SumTensor attention_statistics;
  NormTape norm2;  ///< of what attention and the input are together
  Tensor up;
  Tensor activated;
  // These are gradients, from the input part of a backward to its weight part.
  Tensor d_out;
  AllRows d_out_all;
  Tensor d_up;
  Tensor d_x1;
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
  /// `name` is that of the layer's parameters, as "llm.layers.3". What is referred to outlives it.
  TransformerLayer(const TransformerSpec& spec, Recomputation recomputation, const std::string& name,
                   ParameterStore& store, const RankContext& rank);

  /// Takes the input into the tape and returns the output. With recomputation the tape keeps less.
  Tensor forward(Tensor x, const PackedSequences& sequences, LayerTape& tape) const;

  /// Returns the gradient of the input from that of the output. The tape then has what backward_weight()
  /// reads, and nothing else. Adds to the gradients of the norms' parameters.
  Tensor backward_input(Tensor d_out, const PackedSequences& sequences, LayerTape& tape) const;

  /// Adds to the gradients of all other parameters and frees the tape.
  void backward_weight(LayerTape& tape) const;

 private:
  Tensor fill(const PackedSequences& sequences, LayerTape& tape, bool with_output) const;
  void attend(const PackedSequences& sequences, LayerTape& tape) const;
  Tensor mlp_backward(Tensor d_out, const PackedSequences& sequences, LayerTape& tape) const;
  Tensor attention_backward(const PackedSequences& sequences, LayerTape& tape) const;
  AllRows all_rows(const Tensor& held, std::int64_t rows) const {
    return {rank_, held, rows, "the rows of a layer"};
  }

  const TransformerSpec& spec_;
  Recomputation recomputation_;
  const RankContext& rank_;
  AttentionShape attention_;
  Norm norm1_;
  Linear qkv_;
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
  /// which frees its memory, else backward_weight() does.
  Tensor backward(Tensor d_out, bool weights, StackTape& tape) const;
  void backward_weight(StackTape& tape) const {
    for (std::size_t i = layers_.size(); i-- > 0;) layers_[i].backward_weight(tape.layers[i]);
  }

 private:
  std::vector<TransformerLayer> layers_;
};

}  // namespace dflop
