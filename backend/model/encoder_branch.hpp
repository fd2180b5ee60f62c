// An EncoderBranch is the part of one encoder that a pipeline stage holds: front, layers and connector.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

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
  /// previous stage's output; empty if the branch has the front. Next to the activations, both hold the
  /// outputs of earlier layers that feed the LLM (Architecture::deepstack), until the connectors take them.
  Tensor forward(Tensor in, const EncoderInput& input, BranchTape& tape) const;
  /// Takes the gradient of forward()'s result and returns the gradient of `in`, empty if the branch has the
  /// front. With `weights`, also adds to the gradients of all parameters and frees the tape; otherwise
  /// backward_weight() does that later. `after_layer` is called as by TransformerStack::backward().
  Tensor backward(Tensor d_out, bool weights, BranchTape& tape,
                  const std::function<void(int)>& after_layer = {}) const;
  void backward_weight(BranchTape& tape) const;

  /// Returns the number of values in a row of forward()'s `in`, and of its result without a connector.
  std::int64_t input_columns() const { return width_ * (1 + deep_in_); }
  std::int64_t output_columns() const { return width_ * (1 + deep_out_); }

 private:
  /// Returns a hook that calls visit(feature, tensor) for each of the stage's layers that feed the LLM; null
  /// if there are none. The feature is the layer's place in the deepstack.
  LayerHook at_deep(const std::function<void(int feature, Tensor& tensor)>& visit) const;

  const RankContext& rank_;
  std::int64_t width_;  ///< of the encoder
  int first_layer_;
  std::vector<int> deepstack_;
  int deep_in_;                    ///< features of earlier stages
  int deep_out_;                   ///< features of this stage and earlier ones
  mutable SequencePacker packer_;  // keeps tables between microbatches
  std::unique_ptr<InputEmbedding> input_;
  TransformerStack layers_;
  std::optional<Connectors> connectors_;
};

}  // namespace dflop
