#include "backend/model/stage_module.hpp"

#include <string>

#include "backend/model/synthetic.hpp"
#include "backend/model/tp_rows.hpp"

namespace dflop {
namespace {

template <typename Input>
std::int64_t rows_in(const Input& input) {
  return static_cast<std::int64_t>(input.positions.size());
}

template <typename Input>
PackedSequences pack(const RankContext& rank, const Input& input) {
  return {IndexTensor(rank, input.offsets), IndexTensor(rank, input.positions), rows_in(input)};
}

Tensor run_layers(const std::vector<TransformerLayer>& layers, Tensor x, const PackedSequences& sequences,
                  std::vector<LayerTape>& tapes) {
  tapes.resize(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) x = layers[i].forward(std::move(x), sequences, tapes[i]);
  return x;
}

Tensor run_backward(const std::vector<TransformerLayer>& layers, Tensor d, const PackedSequences& sequences,
                    bool weights, std::vector<LayerTape>& tapes) {
  for (std::size_t i = layers.size(); i-- > 0;) {
    d = layers[i].backward_input(std::move(d), sequences, tapes[i]);
    weights ? layers[i].backward_weight(tapes[i]) : tapes[i].drop_gathered();
  }
  return d;
}

void run_weights(const std::vector<TransformerLayer>& layers, std::vector<LayerTape>& tapes) {
  for (std::size_t i = layers.size(); i-- > 0;) layers[i].backward_weight(tapes[i]);
}

}  // namespace

StageModule::StageModule(const ModelSpec& model, const StagePlace& place, int shards, int shard,
                         std::uint64_t seed, const RankContext& rank)
    : model_(model),
      place_(place),
      rank_(rank),
      store_(rank, stage_parameter_list(model, place, rank.tp_rank, kPatchValues), shards, shard, seed) {
  const Stage& stage = place.stage;
  if (place.patches) patches_.emplace(store_, rank);
  for (int i = 0; i < stage.encoder_layers; ++i) {
    encoder_layers_.emplace_back(model.encoder, stage.recomputation,
                                 "encoder.layers." + std::to_string(place.first_encoder_layer + i), store_,
                                 rank);
  }
  if (stage.connector) connector_.emplace(model, store_, rank);
  if (stage.embedding) embedding_.emplace(store_, rank);
  for (int i = 0; i < stage.llm_layers; ++i) {
    llm_layers_.emplace_back(model.llm, stage.recomputation,
                             "llm.layers." + std::to_string(place.first_llm_layer + i), store_, rank);
  }
  if (stage.head) head_.emplace(store_, rank);
}

std::int64_t StageModule::input_columns() const {
  return place_.stage.encoder_layers > 0 ? model_.encoder.hidden : model_.llm.hidden;
}

std::int64_t StageModule::input_rows(const StageInput& input) const {
  if (place_.patches) return 0;
  if (place_.stage.encoder_layers > 0) return held_rows(rank_, rows_in(*input.encoder));
  return embedding_ ? input.llm->encoder_rows : held_rows(rank_, rows_in(*input.llm));
}

std::int64_t StageModule::output_columns() const {
  return connector_ || place_.stage.llm_layers > 0 ? model_.llm.hidden : model_.encoder.hidden;
}

std::int64_t StageModule::output_rows(const StageInput& input) const {
  if (head_) return 0;
  if (place_.stage.llm_layers > 0) return held_rows(rank_, rows_in(*input.llm));
  return connector_ ? static_cast<std::int64_t>(input.encoder->pool_begin.size())
                    : held_rows(rank_, rows_in(*input.encoder));
}

Tensor StageModule::encode(Tensor in, const EncoderInput& input, StageTape& tape) const {
  tape.encoder_sequences = pack(rank_, input);
  if (patches_) in = patches_->forward(input, tape.patches);
  Tensor x = run_layers(encoder_layers_, std::move(in), tape.encoder_sequences, tape.encoder_layers);
  return connector_ ? connector_->forward(std::move(x), input, tape.connector) : std::move(x);
}

Tensor StageModule::forward(Tensor in, const StageInput& input, Sums loss, StageTape& tape) const {
  const bool encodes = !encoder_layers_.empty();
  Tensor x = encodes ? encode(std::move(in), *input.encoder, tape) : std::move(in);
  if (place_.stage.llm_layers == 0) return x;
  tape.llm_sequences = pack(rank_, *input.llm);
  if (embedding_) x = embedding_->forward(x, *input.llm, tape.embedding);
  x = run_layers(llm_layers_, std::move(x), tape.llm_sequences, tape.llm_layers);
  if (!head_) return x;
  head_->forward(std::move(x), *input.llm, input.token_weight, loss, tape.head);
  return {};
}

Tensor StageModule::encode_backward(Tensor d_out, bool weights, StageTape& tape) const {
  Tensor d = std::move(d_out);
  if (connector_) {
    d = connector_->backward_input(d, tape.connector);
    if (weights) connector_->backward_weight(tape.connector);
  }
  d = run_backward(encoder_layers_, std::move(d), tape.encoder_sequences, weights, tape.encoder_layers);
  if (!patches_) return d;
  patches_->backward_input(std::move(d), tape.patches);
  if (weights) patches_->backward_weight(tape.patches);
  return {};
}

Tensor StageModule::turn_back(Tensor d_out, bool weights, StageTape& tape) const {
  Tensor d = std::move(d_out);
  if (head_) {
    d = head_->backward_input(tape.head);
    if (weights) head_->backward_weight(tape.head);
  }
  d = run_backward(llm_layers_, std::move(d), tape.llm_sequences, weights, tape.llm_layers);
  if (embedding_) d = embedding_->backward(d, tape.embedding);
  return encoder_layers_.empty() ? std::move(d) : encode_backward(std::move(d), weights, tape);
}

Tensor StageModule::backward(Tensor d_out, StageTape& tape) const {
  Tensor d_in = turn_back(std::move(d_out), true, tape);
  tape = {};
  return d_in;
}

Tensor StageModule::backward_input(Tensor d_out, StageTape& tape) const {
  Tensor d_in = turn_back(std::move(d_out), false, tape);
  tape.encoder_sequences = {};
  tape.llm_sequences = {};
  return d_in;
}

void StageModule::backward_weight(StageTape& tape) const {
  if (head_) head_->backward_weight(tape.head);
  run_weights(llm_layers_, tape.llm_layers);
  if (connector_) connector_->backward_weight(tape.connector);
  run_weights(encoder_layers_, tape.encoder_layers);
  if (patches_) patches_->backward_weight(tape.patches);
  tape = {};
}

}  // namespace dflop
