#include "backend/model/parameter_list.hpp"

#include <utility>

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
  /// Adds the bias of such rows, one value for each.
  void bias_by_rows(const std::string& name, const std::vector<std::int64_t>& parts) {
    by_rows(name, parts, 1, Initial::zeros);
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
    if (spec.gated_mlp) {
      by_rows(name + ".up", {spec.ffn, spec.ffn}, hidden, Initial::normal);
    } else {
      by_rows(name + ".up", {spec.ffn}, hidden, Initial::normal);
    }
    by_columns(name + ".down", hidden, spec.ffn);
    if (!biased) return;
    bias_by_rows(name + ".qkv.bias", {queries, keys, keys});
    whole(name + ".attention_out.bias", 1, hidden, Initial::zeros);
    bias_by_rows(name + ".up.bias", {spec.ffn});
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
        bias_by_rows(name + ".bias", {spec.widths[i + 1]});
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

std::vector<Parameter> stage_parameter_list(const ModelSpec& model, const StagePlace& place, int tp_rank,
                                            int patch_values) {
  const Stage& stage = place.stage;
  Listing list(stage.tp, tp_rank);
  if (place.patches) list.whole("encoder.patches", model.encoder.hidden, patch_values, Initial::normal, true);
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

}  // namespace dflop
