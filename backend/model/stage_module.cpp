#include "backend/model/stage_module.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/model/side_by_side.hpp"

namespace dflop {
namespace {

/// Returns the index of the layer of a module, "llm" or "encoder", to which a parameter belongs; -1 if there
/// is none.
int layer_of(const std::string& parameter, const std::string& module) {
  const std::string before = module + ".layers.";
  return parameter.starts_with(before) ? std::stoi(parameter.substr(before.size())) : -1;
}

/// Returns the place of a model's second encoder on the stage with the connectors.
StagePlace place_of_second(const StagePlace& place, const ModelSpec& model) {
  StagePlace second;
  second.stage = stage_of_second(place.stage, model);
  second.patches = true;
  return second;
}

bool is_llm(const std::string& parameter) {
  return parameter.starts_with("llm.");
}

}  // namespace

StageModule::StageModule(const ModelSpec& model, const StagePlace& place, int shards, int shard,
                         std::uint64_t seed, const RankContext& rank, const WeightSource* weights)
    : model_(model),
      place_(place),
      rank_(rank),
      store_(rank, stage_parameter_list(model, place, rank.tp_rank, rank.device.row_alignment()), shards,
             shard, seed, weights),
      llm_packer_(model.llm),
      encoder_(model, place, first_encoder(), store_, rank),
      llm_(model.llm, place.stage.recomputation, "llm", place.first_llm_layer, place.stage.llm_layers, store_,
           rank) {
  if (place.stage.connector && model.second) {
    second_model_ = model.of_second();
    second_.emplace(*second_model_, place_of_second(place, model), second_encoder(), store_, rank);
  }
  if (place.stage.embedding) embedding_.emplace(model, store_, rank);
  if (place.stage.head) head_.emplace(model, store_, rank);
}

std::int64_t StageModule::input_columns() const {
  if (place_.stage.encoder_layers > 0) return encoder_.input_columns();
  if (embedding_) return model_.sent_width();
  return std::int64_t{model_.llm.hidden} * (1 + model_.deep_from(place_.first_llm_layer));
}

std::int64_t StageModule::output_columns() const {
  if (place_.stage.llm_layers > 0)
    return std::int64_t{model_.llm.hidden} * (1 + model_.deep_from(last_llm_layer()));
  return place_.stage.connector ? model_.sent_width() : encoder_.output_columns();
}

std::int64_t StageModule::input_rows(const StageInput& input) const {
  if (place_.patches) return 0;
  if (place_.stage.encoder_layers > 0) return held_rows(rank_, input.encoder->rows());
  return embedding_ ? input.llm->encoder_rows : held_rows(rank_, input.llm->rows());
}

std::int64_t StageModule::output_rows(const StageInput& input) const {
  if (head_) return 0;
  if (place_.stage.llm_layers > 0) return held_rows(rank_, input.llm->rows());
  return place_.stage.connector ? input.encoder->sent_rows() : held_rows(rank_, input.encoder->rows());
}

void StageModule::prepare(const StageInput& input) const {
  if (!encoder_.empty()) encoder_.prepare(*input.encoder);
  if (second_) second_->prepare(*input.encoder->second);
  if (!llm_.empty()) llm_packer_.prepare(rank_, *input.llm);
}

/// Returns the output of the stage's encoder layers. On the stage with the connectors, these are the rows
/// that all encoders send, in the order of their sequences.
Tensor StageModule::encode(Tensor in, const EncoderInput& input, StageTape& tape) const {
  Tensor first = encoder_.forward(std::move(in), input, tape.encoder);
  if (!second_) return first;
  const Tensor second = second_->forward({}, *input.second, tape.second);
  Tensor sent(rank_, first.rows() + second.rows(), first.columns());
  tape.sent_places = IndexTensor(rank_, input.sent_places);
  tape.second_places = IndexTensor(rank_, input.second->sent_places);
  rank_.kernels.zero(Matrix(sent));
  rank_.kernels.scatter_add_rows(sent, first, tape.sent_places);
  rank_.kernels.scatter_add_rows(sent, second, tape.second_places);
  return sent;
}

LayerHook StageModule::at_deep(const std::function<void(int feature, Tensor& tensor)>& visit) const {
  if (model_.deep_from(place_.first_llm_layer) == 0) return {};
  return [this, visit](int layer, Tensor& tensor) {
    const int feature = place_.first_llm_layer + layer;  // the j-th is added after layer j
    if (feature < model_.deep_features()) visit(feature, tensor);
  };
}

Tensor StageModule::run_llm(Tensor x, StageTape& tape) const {
  const int first = place_.first_llm_layer;
  std::vector<Tensor>& deep = tape.deep;
  if (!embedding_ && model_.deep_from(first) > 0) {
    deep = taken_apart(rank_, x, 1 + model_.deep_from(first));
    x = std::move(deep.front());
    deep.erase(deep.begin());
  }
  x = llm_.forward(std::move(x), tape.llm, at_deep([&](int feature, Tensor& out) {
                     if (embedding_) return embedding_->add_deep(feature, out, tape.embedding);
                     rank_.kernels.add(out, deep[static_cast<std::size_t>(feature - first)]);
                     deep[static_cast<std::size_t>(feature - first)] = {};
                   }));
  if (model_.deep_from(last_llm_layer()) == 0) return x;
  std::vector<Tensor> passed;
  passed.push_back(std::move(x));
  for (int feature = last_llm_layer(); feature < model_.deep_features(); ++feature) {
    if (!embedding_) {
      passed.push_back(std::move(deep[static_cast<std::size_t>(feature - first)]));
      continue;
    }
    passed.emplace_back(rank_, passed.front().rows(), passed.front().columns());
    rank_.kernels.zero(Matrix(passed.back()));
    embedding_->add_deep(feature, passed.back(), tape.embedding);
  }
  deep.clear();
  return side_by_side(rank_, passed);
}

Tensor StageModule::run_llm_back(Tensor d, bool weights, StageTape& tape, const Completed& completed) const {
  const int first = place_.first_llm_layer;
  const int last = last_llm_layer();
  std::vector<Tensor> d_deep;  // by feature, from the first layer's on; empty if the embedding keeps them
  if (!embedding_) d_deep.resize(static_cast<std::size_t>(model_.deep_from(first)));
  const auto keep = [&](int feature, const Tensor& of) {
    if (embedding_) return embedding_->keep_deep_gradient(feature, of, tape.embedding);
    d_deep[static_cast<std::size_t>(feature - first)] = copy_of(rank_, of);
  };
  if (model_.deep_from(last) > 0) {
    std::vector<Tensor> apart = taken_apart(rank_, d, 1 + model_.deep_from(last));
    d = std::move(apart.front());
    for (std::size_t part = 1; part < apart.size(); ++part)
      keep(last + static_cast<int>(part) - 1, apart[part]);
  }
  d = llm_.backward(std::move(d), weights, tape.llm, after_layers(false, completed), at_deep(keep));
  if (embedding_) return embedding_->backward(d, tape.embedding);
  if (d_deep.empty()) return d;
  d_deep.insert(d_deep.begin(), std::move(d));
  return side_by_side(rank_, d_deep);
}

Tensor StageModule::forward(Tensor in, const StageInput& input, Sums loss, StageTape& tape) const {
  Tensor x = !encoder_.empty() ? encode(std::move(in), *input.encoder, tape) : std::move(in);
  if (place_.stage.llm_layers == 0) return x;
  tape.llm.sequences = llm_packer_(rank_, *input.llm);
  if (embedding_) x = embedding_->forward(x, *input.llm, tape.embedding);
  x = run_llm(std::move(x), tape);
  if (!head_) return x;
  head_->forward(std::move(x), *input.llm, input.token_weight, loss, tape.head, input.turns_back);
  return {};
}

Tensor StageModule::logits(const Tensor& encoded, const LlmInput& input,
                           std::vector<std::int32_t> rows) const {
  StageTape tape;
  tape.llm.sequences = llm_packer_(rank_, input);
  Tensor x = embedding_->forward(encoded, input, tape.embedding);
  return head_->logits(run_llm(std::move(x), tape), input.rows(), std::move(rows));
}

/// Returns the value from which on gradients are complete when a backward has reached a layer. Gradients that
/// are summed over tp are complete only after the whole backward; they are stored before all others.
std::int64_t StageModule::complete_from(bool encoder, int layer) const {
  std::int64_t from = 0;
  for (const Parameter& parameter : store_.list()) {
    const std::string& name = parameter.name;
    const bool of_connector = name.starts_with("connector.") || name.starts_with("encoder.norm");
    const bool is_complete = encoder ? of_connector || is_llm(name) || name.starts_with("second.") ||
                                           layer_of(name, "encoder") >= layer
                                     : name == "llm.head" || layer_of(name, "llm") >= layer;
    if (!is_complete || parameter.by_held_rows || parameter.by_heads) {
      from = std::max(from, parameter.offset + parameter.padded_count());
    }
  }
  return from;
}

std::function<void(int)> StageModule::after_layers(bool encoder, const Completed& completed) const {
  if (!completed) return {};
  const int first = encoder ? place_.first_encoder_layer : place_.first_llm_layer;
  return [this, encoder, first, &completed](int layer) { completed(complete_from(encoder, first + layer)); };
}

Tensor StageModule::encode_backward(Tensor d_out, bool weights, StageTape& tape,
                                    const Completed& completed) const {
  if (second_) {
    const auto part = [&](const IndexTensor& places) {
      Tensor d(rank_, places.size(), d_out.columns());
      rank_.kernels.gather_rows(d, d_out, places);
      return d;
    };
    Tensor d_first = part(tape.sent_places);
    second_->backward(part(tape.second_places), weights, tape.second);
    d_out = std::move(d_first);
  }
  return encoder_.backward(std::move(d_out), weights, tape.encoder, after_layers(true, completed));
}

Tensor StageModule::turn_back(Tensor d_out, bool weights, StageTape& tape, const Completed& completed) const {
  Tensor d = std::move(d_out);
  if (head_) {
    d = head_->backward_input(tape.head);
    if (weights) head_->backward_weight(tape.head);
  }
  if (place_.stage.llm_layers > 0) d = run_llm_back(std::move(d), weights, tape, completed);
  return encoder_.empty() ? std::move(d) : encode_backward(std::move(d), weights, tape, completed);
}

Tensor StageModule::backward(Tensor d_out, StageTape& tape, const Completed& completed) const {
  Tensor d_in = turn_back(std::move(d_out), true, tape, completed);
  tape = {};
  return d_in;
}

Tensor StageModule::backward_input(Tensor d_out, StageTape& tape) const {
  Tensor d_in = turn_back(std::move(d_out), false, tape, {});
  tape.llm.sequences = {};
  return d_in;
}

void StageModule::backward_weight(StageTape& tape) const {
  if (head_) head_->backward_weight(tape.head);
  llm_.backward_weight(tape.llm);
  if (second_) second_->backward_weight(tape.second);
  encoder_.backward_weight(tape.encoder);
  tape = {};
}

}  // namespace dflop
