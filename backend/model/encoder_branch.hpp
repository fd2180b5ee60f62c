// An EncoderBranch is the part of one encoder that a pipeline stage holds: front, layers and connector.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "backend/model/ends.hpp"
#include "backend/model/input_embedding.hpp"
#include "backend/model/transformer_layer.hpp"

namespace dflop {

/// A BranchTape holds the data that a branch keeps from a microbatch's forward to its backward.
struct BranchTape {
  InputTape input;
  StackTape layers;
  Connectors::Tape connectors;
};

/// An EncoderBranch computes a stage's part of one of the model's encoders.
class EncoderBranch {
 public:
  /// Makes the part of `model`'s encoder that `place` holds. The referenced objects must outlive the branch.
  EncoderBranch(const ModelSpec& model, const StagePlace& place, const EncoderNames& names,
                ParameterStore& store, const RankContext& rank);

  bool empty() const { return layers_.empty(); }

  /// Extends the tables that are kept between microbatches to cover `input`.
  void prepare(const EncoderInput& input) const { packer_.prepare(rank_, input); }
  /// Returns the output of the last layer or, on the stage with the connector, the rows to send. `in` is the
  /// previous stage's output; empty if the branch has the front.
  Tensor forward(Tensor in, const EncoderInput& input, BranchTape& tape) const;
  /// Takes the gradient of forward()'s result and returns the gradient of `in`, empty if the branch has the
  /// front. With `weights`, also adds to the gradients of all parameters and frees the tape; otherwise
  /// backward_weight() does that later. `after_layer` is called as by TransformerStack::backward().
  Tensor backward(Tensor d_out, bool weights, BranchTape& tape,
                  const std::function<void(int)>& after_layer = {}) const;
  void backward_weight(BranchTape& tape) const;

 private:
  /// Returns the hook that takes deep features from layers; null if there are none.
  LayerHook take_deep(const EncoderInput& input, BranchTape& tape) const;

  const RankContext& rank_;
  bool has_deep_;
  mutable SequencePacker packer_;  // keeps tables between microbatches
  std::unique_ptr<InputEmbedding> input_;
  TransformerStack layers_;
  std::optional<Connectors> connectors_;
};

}  // namespace dflop
