#include "backend/model/encoder_branch.hpp"

#include <algorithm>
#include <utility>

#include "backend/model/side_by_side.hpp"

namespace dflop {

EncoderBranch::EncoderBranch(const ModelSpec& model, const StagePlace& place, const EncoderNames& names,
                             ParameterStore& store, const RankContext& rank)
    : rank_(rank),
      width_(model.encoder.hidden),
      first_layer_(place.first_encoder_layer),
      deep_in_(model.deep_before(place.first_encoder_layer)),
      deep_out_(model.deep_before(place.first_encoder_layer + place.stage.encoder_layers)),
      packer_(model.encoder),
      layers_(model.encoder, place.stage.recomputation, names.encoder, place.first_encoder_layer,
              place.stage.encoder_layers, store, rank) {
  if (model.architecture) deepstack_ = model.architecture->deepstack;
  if (place.patches) input_ = make_input_embedding(model, names.encoder, store, rank);
  if (place.stage.connector) connectors_.emplace(model, names, store, rank);
}

LayerHook EncoderBranch::at_deep(const std::function<void(int feature, Tensor& tensor)>& visit) const {
  if (deep_in_ == deep_out_) return {};
  return [this, visit](int layer, Tensor& tensor) {
    const auto found = std::ranges::find(deepstack_, first_layer_ + layer);
    if (found != deepstack_.end()) visit(static_cast<int>(found - deepstack_.begin()), tensor);
  };
}

Tensor EncoderBranch::forward(Tensor in, const EncoderInput& input, BranchTape& tape) const {
  tape.layers.sequences = packer_(rank_, input);
  std::vector<Tensor> passed(1);  // the activations, then the features that go to the next stage
  if (deep_in_ > 0) {
    passed = taken_apart(rank_, in, 1 + deep_in_);
    in = std::move(passed.front());
  }
  if (input_) in = input_->forward(input, tape.input);
  if (connectors_) {
    connectors_->begin(tape.connectors);
    for (int f = 0; f < deep_in_; ++f)
      connectors_->take(f, std::move(passed[static_cast<std::size_t>(1 + f)]), input, tape.connectors);
  }
  passed.front() = layers_.forward(std::move(in), tape.layers, at_deep([&](int feature, Tensor& x) {
                                     Tensor copy = copy_of(rank_, x);
                                     if (connectors_) {
                                       connectors_->take(feature, std::move(copy), input, tape.connectors);
                                     } else {
                                       passed.push_back(std::move(copy));
                                     }
                                   }));
  if (connectors_) return connectors_->forward(std::move(passed.front()), input, tape.connectors);
  return passed.size() == 1 ? std::move(passed.front()) : side_by_side(rank_, passed);
}

Tensor EncoderBranch::backward(Tensor d_out, bool weights, BranchTape& tape,
                               const std::function<void(int)>& after_layer) const {
  std::vector<Tensor> d(1);  // of the activations, then of the features
  if (connectors_) {
    d.front() = connectors_->backward_input(d_out, tape.connectors);
    for (int f = 0; f < deep_out_; ++f) d.push_back(connectors_->backward_deep(f, tape.connectors));
    if (weights) connectors_->backward_weight(tape.connectors);
  } else if (deep_out_ > 0) {
    d = taken_apart(rank_, d_out, 1 + deep_out_);
  } else {
    d.front() = std::move(d_out);
  }
  Tensor d_in = layers_.backward(std::move(d.front()), weights, tape.layers, after_layer,
                                 at_deep([&](int feature, Tensor& of) {
                                   Tensor& own = d[static_cast<std::size_t>(1 + feature)];
                                   rank_.kernels.add(of, own);
                                   own = {};
                                 }));
  if (!weights) tape.layers.sequences = {};
  if (!input_) {
    if (deep_in_ == 0) return d_in;
    d.front() = std::move(d_in);
    d.resize(static_cast<std::size_t>(1 + deep_in_));
    return side_by_side(rank_, d);
  }
  tape.input.d_rows = std::move(d_in);
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
