#include "backend/model/parameter_list.hpp"

#include <utility>

#include "backend/model/microbatch.hpp"
#include "core/error.hpp"

namespace dflop {
namespace {

/// A Listing writes down the tensors of one stage on one tp rank.
class Listing {
 public:
  Listing(int tp, int tp_rank) : tp_(tp), tp_rank_(tp_rank) {}

  std::vector<Parameter> take() { return std::move(list_); }

  void whole(const std::string& name, std::int64_t rows, std::int64_t columns, Initial initial,
             bool by_held_rows = false) {
    list_.push_back({name, rows, columns, {{0, rows}}, {0, columns}, initial, by_held_rows});
  }
  /// Adds rows of several parts, as queries, keys and values: of each its tp rank's share.
  void by_rows(const std::string& name, const std::vector<std::int64_t>& parts, std::int64_t columns,
               Initial initial) {
    Parameter parameter{name, 0, columns, {}, {0, columns}, initial};
    for (const std::int64_t part : parts) {
      const Range share = share_of(part, name);
      parameter.row_ranges.push_back({parameter.rows + share.begin, parameter.rows + share.end});
      parameter.rows += part;
    }
    list_.push_back(std::move(parameter));
  }
  void by_columns(const std::string& name, std::int64_t rows, std::int64_t columns) {
    list_.push_back({name, rows, columns, {{0, rows}}, share_of(columns, name), Initial::normal});
  }

  void layer(const TransformerSpec& spec, const std::string& name) {
    const std::int64_t hidden = spec.hidden;
    const std::int64_t queries = std::int64_t{spec.heads} * spec.head_dim;
    const std::int64_t keys = std::int64_t{spec.kv_heads} * spec.head_dim;
    const bool biased = !spec.gated_mlp;
    require(
        spec.heads % tp_ == 0 && spec.kv_heads % tp_ == 0,
        name + ": heads " + std::to_string(spec.heads) + " and KV heads " + std::to_string(spec.kv_heads));
    norm(name + ".norm1", hidden, biased);
    by_rows(name + ".qkv", {queries, keys, keys}, hidden, Initial::normal);
    by_columns(name + ".attention_out", hidden, queries);
    norm(name + ".norm2", hidden, biased);
    by_rows(name + ".up", std::vector<std::int64_t>(spec.gated_mlp ? 2 : 1, spec.ffn), hidden,
            Initial::normal);
    by_columns(name + ".down", hidden, spec.ffn);
    if (!biased) return;
    by_rows(name + ".qkv.bias", {queries, keys, keys}, 1, Initial::zeros);
    whole(name + ".attention_out.bias", 1, hidden, Initial::zeros);
    by_rows(name + ".up.bias", {spec.ffn}, 1, Initial::zeros);
    whole(name + ".down.bias", 1, hidden, Initial::zeros);
  }

  void norm(const std::string& name, std::int64_t width, bool biased) {
    whole(name + ".gamma", 1, width, Initial::ones, true);
    if (biased) whole(name + ".beta", 1, width, Initial::zeros, true);
  }

  /// Adds linear layers by twos: rows of the first and columns of the second are split.
  void connector(const ConnectorSpec& spec) {
    const std::size_t linears = spec.widths.size() - 1;
    require(tp_ == 1 || linears % 2 == 0, "a connector of " + std::to_string(linears) + " linear layers");
    for (std::size_t i = 0; i < linears; ++i) {
      const std::string name = "connector." + std::to_string(i);
      if (i % 2 == 0) {
        by_rows(name, {spec.widths[i + 1]}, spec.widths[i], Initial::normal);
        by_rows(name + ".bias", {spec.widths[i + 1]}, 1, Initial::zeros);
      } else {
        by_columns(name, spec.widths[i + 1], spec.widths[i]);
        whole(name + ".bias", 1, spec.widths[i + 1], Initial::zeros);
      }
    }
  }

 private:
  Range share_of(std::int64_t count, const std::string& name) const {
    require(count % tp_ == 0, name + ": " + std::to_string(count));
    return {count / tp_ * tp_rank_, count / tp_ * (tp_rank_ + 1)};
  }

  void require(bool divides, const std::string& what) const {
    if (divides) return;
    throw Error(ErrorKind::input,
                what + " cannot be split over tp " + std::to_string(tp_) + "; live runs pad nothing");
  }

  int tp_;
  int tp_rank_;
  std::vector<Parameter> list_;
};

void require(bool holds, const ModelSpec& model, const std::string& message) {
  if (!holds) throw Error(ErrorKind::input, "model '" + model.name + "' cannot be run live: " + message);
}

void require_heads(const ModelSpec& model, const TransformerSpec& spec, const std::string& module) {
  require(spec.head_dim > 0 && spec.head_dim % 2 == 0, model,
          module + ": expected an even head_dim, as rotary positions turn pairs, found " +
              std::to_string(spec.head_dim));
  require(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0, model,
          module + ": expected KV heads that divide its " + std::to_string(spec.heads) + " heads, found " +
              std::to_string(spec.kv_heads));
}

void require_connector(const ModelSpec& model) {
  const std::vector<int>& widths = model.connector.widths;
  const int first = model.encoder.hidden * model.connector.merge;
  require(widths.size() > 1, model,
          "expected a connector between encoder and LLM, found none; give at least one linear layer, as "
          "widths [" +
              std::to_string(first) + ", " + std::to_string(model.llm.hidden) + "]");
  require(widths.front() == first, model,
          "connector: expected the first width " + std::to_string(first) + ", which is " +
              std::to_string(model.connector.merge) + " x the encoder's, found " +
              std::to_string(widths.front()));
  require(widths.back() == model.llm.hidden, model,
          "connector: expected the last width " + std::to_string(model.llm.hidden) +
              ", which is the LLM's, found " + std::to_string(widths.back()));
}

}  // namespace

std::int64_t Parameter::held_rows() const {
  std::int64_t rows_held = 0;
  for (const Range& range : row_ranges) rows_held += range.size();
  return rows_held;
}

std::vector<StagePlace> stage_places(const std::vector<Stage>& stages) {
  std::vector<StagePlace> places;
  int encoder = 0;
  int llm = 0;
  for (const Stage& stage : stages) {
    places.push_back({stage, encoder, llm, encoder == 0 && stage.encoder_layers > 0});
    encoder += stage.encoder_layers;
    llm += stage.llm_layers;
  }
  return places;
}

std::vector<Parameter> stage_parameter_list(const ModelSpec& model, const StagePlace& place, int tp_rank) {
  const Stage& stage = place.stage;
  Listing list(stage.tp, tp_rank);
  if (place.patches) list.whole("encoder.patches", model.encoder.hidden, kPatchValues, Initial::normal, true);
  for (int i = 0; i < stage.encoder_layers; ++i) {
    list.layer(model.encoder, "encoder.layers." + std::to_string(place.first_encoder_layer + i));
  }
  if (stage.connector) {
    list.norm("encoder.norm", model.encoder.hidden, true);
    list.connector(model.connector);
  }
  if (stage.embedding)
    list.by_rows("llm.embedding", {model.llm.vocabulary}, model.llm.hidden, Initial::normal);
  for (int i = 0; i < stage.llm_layers; ++i) {
    list.layer(model.llm, "llm.layers." + std::to_string(place.first_llm_layer + i));
  }
  if (stage.head) {
    if (model.llm.tied_embeddings) {
      throw Error(ErrorKind::input, "live runs have no tied embeddings, which " + model.name + " asks for");
    }
    list.norm("llm.norm", model.llm.hidden, false);
    list.by_rows("llm.head", {model.llm.vocabulary}, model.llm.hidden, Initial::normal);
  }
  return list.take();
}

void require_live(const ModelSpec& model) {
  if (model.encoder.layers > 0) {
    require_heads(model, model.encoder, "encoder");
    require_connector(model);
  }
  require_heads(model, model.llm, "LLM");
  require(model.llm.vocabulary > 0, model, "expected an LLM with a vocabulary, found none");
}

void require_split(const ModelSpec& model, int encoder_tp, int llm_tp) {
  StagePlace encoder;  // one layer of each module, and the ends
  encoder.stage.tp = encoder_tp;
  encoder.stage.encoder_layers = 1;
  encoder.stage.connector = true;
  encoder.patches = true;
  StagePlace llm;
  llm.stage.tp = llm_tp;
  llm.stage.llm_layers = 1;
  llm.stage.embedding = llm.stage.head = true;
  if (model.encoder.layers > 0) stage_parameter_list(model, encoder, 0);
  stage_parameter_list(model, llm, 0);
}

void require_live(const ModelSpec& model, std::span<const Sample> samples) {
  for (const Sample& sample : samples) {
    if (sample.encoder_output_tokens == 0) continue;
    const std::string found = "sample '" + sample.id + "': " + std::to_string(sample.encoder_output_tokens) +
                              " LLM tokens come from the encoder, ";
    if (sample.encoder().tokens == 0) throw Error(ErrorKind::input, found + "to which it gives nothing");
    if (model.encoder.layers == 0) {
      throw Error(ErrorKind::input, found + "which model '" + model.name + "' has not");
    }
  }
}

}  // namespace dflop
