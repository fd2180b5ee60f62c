#include "backend/model/encoder_branch.hpp"

#include <utility>

namespace dflop {

EncoderBranch::EncoderBranch(const ModelSpec& model, const StagePlace& place, const EncoderNames& names,
                             ParameterStore& store, const RankContext& rank)
    : rank_(rank),
      has_deep_(model.deep_features() > 0),
      packer_(model.encoder),
      layers_(model.encoder, place.stage.recomputation, names.encoder, place.first_encoder_layer,
              place.stage.encoder_layers, store, rank) {
  if (place.patches) input_ = make_input_embedding(model, names.encoder, store, rank);
  if (place.stage.connector) connectors_.emplace(model, names, store, rank);
}

LayerHook EncoderBranch::take_deep(const EncoderInput& input, BranchTape& tape) const {
  if (!connectors_ || !has_deep_) return {};
  return [this, &input, &tape](int layer, Tensor& x) { connectors_->take(layer, x, input, tape.connectors); };
}

Tensor EncoderBranch::forward(Tensor in, const EncoderInput& input, BranchTape& tape) const {
  tape.layers.sequences = packer_(rank_, input);
  if (input_) in = input_->forward(input, tape.input);
  if (connectors_) connectors_->begin(tape.connectors);
  Tensor x = layers_.forward(std::move(in), tape.layers, take_deep(input, tape));
  return connectors_ ? connectors_->forward(std::move(x), input, tape.connectors) : std::move(x);
}

Tensor EncoderBranch::backward(Tensor d_out, bool weights, BranchTape& tape,
                               const std::function<void(int)>& after_layer) const {
  Tensor d = std::move(d_out);
  LayerHook add_deep_gradient;
  if (connectors_) {
    d = connectors_->backward_input(d, tape.connectors);
    if (has_deep_) {
      add_deep_gradient = [&](int layer, Tensor& of) {
        connectors_->add_backward(layer, of, tape.connectors);
      };
    }
  }
  if (weights && connectors_ && !add_deep_gradient) connectors_->backward_weight(tape.connectors);
  d = layers_.backward(std::move(d), weights, tape.layers, after_layer, add_deep_gradient);
  if (weights && add_deep_gradient) connectors_->backward_weight(tape.connectors);
  if (!weights) tape.layers.sequences = {};
  if (!input_) return d;
  tape.input.d_rows = std::move(d);
  if (weights) input_->backward_weight(tape.input);
  return {};
}

void EncoderBranch::backward_weight(BranchTape& tape) const {
  if (connectors_) connectors_->backward_weight(tape.connectors);
  layers_.backward_weight(tape.layers);
  if (input_) input_->backward_weight(tape.input);
  tape = {};
}

}  // namespace dflop
