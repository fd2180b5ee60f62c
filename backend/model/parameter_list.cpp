#include "backend/model/parameter_list.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/missing_encoder.hpp"

namespace dflop {
namespace {

/// A Listing collects the parameters of one stage on one tp rank.
class Listing {
 public:
  Listing(int tp, int tp_rank, int row_alignment)
      : tp_(tp), tp_rank_(tp_rank), row_alignment_(row_alignment) {}

  std::vector<Parameter> take() { return std::move(list_); }

  void whole(const std::string& name, std::int64_t rows, std::int64_t columns, Initial initial,
             bool by_held_rows = false) {
    list_.push_back({name, rows, columns, {{0, rows}}, {0, columns}, initial, by_held_rows});
  }
  /// Adds one row of values without weight decay: a bias, or the factors of a norm.
  void vector(const std::string& name, std::int64_t width, Initial initial, bool by_held_rows = false) {
    whole(name, 1, width, initial, by_held_rows);
    list_.back().decayed = false;
  }
  /// Adds a matrix whose rows are several parts, such as queries, keys and values. The tp rank gets its share
  /// of each part.
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
  /// Adds the bias of a matrix of by_rows().
  void bias_by_rows(const std::string& name, const std::vector<std::int64_t>& parts) {
    by_rows(name + ".bias", parts, 1, Initial::zeros);
    list_.back().decayed = false;
  }
  void by_columns(const std::string& name, std::int64_t rows, std::int64_t columns) {
    list_.push_back({name, rows, columns, {{0, rows}}, share_of(columns, name), Initial::normal});
  }
  /// Adds the linear layer before an activation. Each of `parts` is as wide as the activation.
  void before_activation(const std::string& name, const std::vector<std::int64_t>& parts,
                         std::int64_t columns) {
    by_rows(name, parts, columns, Initial::normal);
    list_.back().row_multiple = row_alignment_;
  }
  void bias_before_activation(const std::string& name, const std::vector<std::int64_t>& parts) {
    bias_by_rows(name, parts);
    list_.back().row_multiple = row_alignment_;
  }
  /// Adds the linear layer after an activation.
  void after_activation(const std::string& name, std::int64_t rows, std::int64_t columns) {
    by_columns(name, rows, columns);
    list_.back().column_multiple = row_alignment_;
  }

  void layer(const TransformerSpec& spec, const std::string& name) {
    const LayerForm form = spec.layer_form();
    const std::int64_t hidden = spec.hidden;
    const std::int64_t queries = std::int64_t{spec.heads} * spec.head_dim;
    const std::int64_t keys = std::int64_t{spec.kv_heads} * spec.head_dim;
    const std::vector<std::int64_t> ups(form.activation == Activation::swiglu ? 2 : 1, spec.ffn);
    require(
        spec.heads % tp_ == 0 && spec.kv_heads % tp_ == 0,
        name + ": heads " + std::to_string(spec.heads) + " and KV heads " + std::to_string(spec.kv_heads));
    norm(name + ".norm1", hidden, form.norm, true);
    by_rows(name + ".qkv", {queries, keys, keys}, hidden, Initial::normal);
    if (form.qk_norm == QkNormKind::all_heads) {
      require(tp_ == 1, name + ": a norm of queries over all heads");
      norm(name + ".q_norm", queries, NormKind::rms, false);
      norm(name + ".k_norm", keys, NormKind::rms, false);
    } else if (form.qk_norm == QkNormKind::each_head) {
      for (const char* which : {".q_norm", ".k_norm"}) {
        norm(name + which, spec.head_dim, NormKind::rms, false);
        list_.back().by_heads = true;
      }
    }
    by_columns(name + ".attention_out", hidden, queries);
    norm(name + ".norm2", hidden, form.norm, true);
    before_activation(name + ".up", ups, hidden);
    after_activation(name + ".down", hidden, spec.ffn);
    if (form.layer_scale) {
      for (const char* scale : {".scale1", ".scale2"}) {
        vector(name + scale, hidden, Initial::ones, true);
        list_.back().initial_factor = form.layer_scale_start;
      }
    }
    if (form.qkv_bias) {
      bias_by_rows(name + ".qkv", {queries, keys, keys});
      if (!form.key_bias) list_.back().fixed_rows = {queries / tp_, (queries + keys) / tp_};
    }
    if (form.output_bias) vector(name + ".attention_out.bias", hidden, Initial::zeros);
    if (form.mlp_bias) {
      bias_before_activation(name + ".up", ups);
      vector(name + ".down.bias", hidden, Initial::zeros);
    }
  }

  /// Adds a norm, over the rows that a rank holds or over all rows.
  void norm(const std::string& name, std::int64_t width, NormKind kind, bool by_held_rows) {
    vector(name + ".gamma", width, Initial::ones, by_held_rows);
    if (kind == NormKind::layer) vector(name + ".beta", width, Initial::zeros, by_held_rows);
  }

  /// Adds the encoder's input embedding. Each rank makes the rows that it holds.
  void front(const EncoderFront& front, std::int64_t hidden, const std::string& encoder) {
    if (front.kind == FrontKind::sound) {
      whole(encoder + ".conv1", hidden, 3 * std::int64_t{front.values}, Initial::normal, true);
      vector(encoder + ".conv1.bias", hidden, Initial::zeros, true);
      whole(encoder + ".conv2", hidden, 3 * hidden, Initial::normal, true);
      vector(encoder + ".conv2.bias", hidden, Initial::zeros, true);
    } else {
      whole(encoder + ".patches", hidden, front.values, Initial::normal, true);
      if (front.bias) vector(encoder + ".patches.bias", hidden, Initial::zeros, true);
    }
    if (front.class_row) whole(encoder + ".class", 1, hidden, Initial::normal, true);
    if (front.table > 0) {
      whole(encoder + ".positions", front.table, hidden,
            front.frozen_table ? Initial::sinusoids : Initial::normal, true);
      list_.back().frozen = front.frozen_table;
    }
    if (front.norm) norm(encoder + ".front_norm", hidden, *front.norm, true);
  }

  /// Adds a model's second encoder with its front and connector.
  void second(const ModelSpec& model) {
    const ModelSpec of = model.of_second();
    const EncoderNames names = second_encoder();
    front(of.front(), of.encoder.hidden, names.encoder);
    for (int i = 0; i < of.encoder.layers; ++i)
      layer(of.encoder, names.encoder + ".layers." + std::to_string(i));
    connectors(of, names);
  }

  /// Adds the connector and the connectors of deep features.
  void connectors(const ModelSpec& model, const EncoderNames& names) {
    const ConnectorForm form = model.connector_form();
    const std::size_t first = list_.size();
    connector(model, names);
    for (int deep = 0; deep < model.deep_features(); ++deep) {
      const std::string name = deep_connector_name(deep);
      if (form.norm) norm(name + ".norm", model.connector.widths.front(), *form.norm, false);
      linears(name, model.connector);
    }
    // The norm before the connector of a sound encoder is that encoder's last one (Whisper's ln_post).
    const bool has_own_norm =
        form.norm && model.architecture && model.architecture->front.kind == FrontKind::sound;
    for (std::size_t i = first; i < list_.size(); ++i)
      list_[i].connects = !has_own_norm || !list_[i].name.starts_with(names.encoder + ".norm");
  }

  /// Adds the connector's norm and linear layers.
  void connector(const ModelSpec& model, const EncoderNames& names) {
    const ConnectorSpec& spec = model.connector;
    const ConnectorForm form = model.connector_form();
    if (form.norm) {
      norm(names.encoder + ".norm", form.selects ? spec.widths.front() : model.encoder.hidden, *form.norm,
           !form.selects);
    }
    linears(names.connector, spec);
  }

  /// Adds a connector's linear layers. They are split in pairs: the first by rows, the second by columns. A
  /// last one without a partner is not split.
  void linears(const std::string& connector, const ConnectorSpec& spec) {
    const std::size_t linears = spec.widths.size() - 1;
    for (std::size_t i = 0; i < linears; ++i) {
      const std::string name = connector + "." + std::to_string(i);
      if (i % 2 == 1) {
        after_activation(name, spec.widths[i + 1], spec.widths[i]);
        vector(name + ".bias", spec.widths[i + 1], Initial::zeros);
      } else if (i + 1 < linears) {
        before_activation(name, {spec.widths[i + 1]}, spec.widths[i]);
        bias_before_activation(name, {spec.widths[i + 1]});
      } else {
        whole(name, spec.widths[i + 1], spec.widths[i], Initial::normal);
        vector(name + ".bias", spec.widths[i + 1], Initial::zeros);
      }
    }
  }

 private:
  /// Returns a rank's share of rows or columns. If tp does not divide them, some ranks have one more than
  /// others.
  Range share_of(std::int64_t count, const std::string& name) const {
    if (count < tp_) {
      throw Error(ErrorKind::input, name + ": " + std::to_string(count) + " cannot be split over tp " +
                                        std::to_string(tp_) + ", because each rank needs at least one");
    }
    return {count * tp_rank_ / tp_, count * (tp_rank_ + 1) / tp_};
  }

  void require(bool divides, const std::string& what) const {
    if (divides) return;
    throw Error(ErrorKind::input,
                what + " cannot be split over tp " + std::to_string(tp_) + "; live runs do not pad");
  }

  int tp_;
  int tp_rank_;
  int row_alignment_;
  std::vector<Parameter> list_;
};

void require(bool holds, const ModelSpec& model, const std::string& message) {
  if (!holds) throw Error(ErrorKind::input, "model '" + model.name + "' cannot be run live: " + message);
}

void require_heads(const ModelSpec& model, const TransformerSpec& spec, const std::string& module) {
  require(spec.head_dim > 0 && (spec.head_dim % 2 == 0 || !spec.layer_form().rotary), model,
          module + ": expected an even head_dim, because rotary positions turn pairs, found " +
              std::to_string(spec.head_dim));
  require(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0, model,
          module + ": expected KV heads that divide its " + std::to_string(spec.heads) + " heads, found " +
              std::to_string(spec.kv_heads));
}

void require_connector(const ModelSpec& model, const std::string& name) {
  const std::vector<int>& widths = model.connector.widths;
  const int first = model.encoder.hidden * model.joined_rows();
  require(widths.size() > 1, model,
          "expected a connector between encoder and LLM, found none; give at least one linear layer, as "
          "widths [" +
              std::to_string(first) + ", " + std::to_string(model.llm.hidden) + "]");
  require(widths.front() == first, model,
          name + ": expected the first width " + std::to_string(first) + ", which is " +
              std::to_string(model.joined_rows()) + " x the encoder's, found " +
              std::to_string(widths.front()));
  require(widths.back() == model.llm.hidden, model,
          name + ": expected the last width " + std::to_string(model.llm.hidden) +
              ", which is the LLM's, found " + std::to_string(widths.back()));
}

}  // namespace

std::int64_t Parameter::held_rows() const {
  std::int64_t rows_held = 0;
  for (const Range& range : row_ranges) rows_held += range.size();
  return rows_held;
}

std::int64_t Parameter::padded_rows() const {
  std::int64_t rows_padded = 0;
  for (const Range& range : row_ranges) rows_padded += round_up(range.size(), row_multiple);
  return rows_padded;
}

std::int64_t Parameter::place_of(std::int64_t value) const {
  std::int64_t row = value / held_columns();
  std::int64_t first = 0;  // row in memory, of the range
  for (const Range& range : row_ranges) {
    if (row < range.size()) return (first + row) * padded_columns() + value % held_columns();
    row -= range.size();
    first += round_up(range.size(), row_multiple);
  }
  return padded_count();
}

std::int64_t Parameter::values_before(std::int64_t place) const {
  std::int64_t row = place / padded_columns();  // in memory, from the range's first on
  std::int64_t first = 0;                       // held row, of the range
  for (const Range& range : row_ranges) {
    if (row < range.size()) {
      return (first + row) * held_columns() + std::min(place % padded_columns(), held_columns());
    }
    first += range.size();
    row -= round_up(range.size(), row_multiple);
    if (row < 0) break;  // in the padding of this range
  }
  return first * held_columns();
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
                                            int row_alignment) {
  const Stage& stage = place.stage;
  Listing list(stage.tp, tp_rank, row_alignment);
  const EncoderNames names = first_encoder();
  if (place.patches) list.front(model.front(), model.encoder.hidden, names.encoder);
  for (int i = 0; i < stage.encoder_layers; ++i) {
    list.layer(model.encoder, names.encoder + ".layers." + std::to_string(place.first_encoder_layer + i));
  }
  if (stage.connector) list.connectors(model, names);
  if (stage.connector && model.second) list.second(model);
  const bool tied = model.llm.tied_embeddings;
  if (tied && stage.head && !stage.embedding && !model.architecture) {
    throw Error(ErrorKind::input, "model '" + model.name +
                                      "': tied embeddings on several pipeline ranks need a model with an "
                                      "architecture, such as the folder of a Transformers model");
  }
  if (stage.embedding || (stage.head && tied)) {
    list.by_rows("llm.embedding", {model.llm.vocabulary}, model.llm.hidden, Initial::normal);
  }
  if (stage.embedding && model.architecture && model.architecture->newline) {
    list.vector("llm.newline", model.llm.hidden, Initial::normal);
  }
  for (int i = 0; i < stage.llm_layers; ++i) {
    list.layer(model.llm, "llm.layers." + std::to_string(place.first_llm_layer + i));
  }
  if (stage.head) {
    list.norm("llm.norm", model.llm.hidden, model.llm.layer_form().norm, true);
    if (!tied) list.by_rows("llm.head", {model.llm.vocabulary}, model.llm.hidden, Initial::normal);
  }
  return list.take();
}

std::string deep_connector_name(int deep) {
  return "connector.deep." + std::to_string(deep);
}

void require_live(const ModelSpec& model) {
  if (model.encoder.layers > 0) {
    require_heads(model, model.encoder, "encoder");
    require_connector(model, "connector");
  }
  if (model.second) {
    require_heads(model, model.second->encoder, "second encoder");
    require_connector(model.of_second(), "second connector");
    require(model.deep_features() == 0, model,
            "expected no deep features (deepstack) in a model with a second encoder, found " +
                std::to_string(model.deep_features()));
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

bool is_splittable(const ModelSpec& model, int encoder_tp, int llm_tp) {
  try {
    require_split(model, encoder_tp, llm_tp);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void require_live(const ModelSpec& model, std::span<const Sample> samples) {
  for (const Sample& sample : samples) {
    if (const std::string missing = missing_encoder(model, sample); !missing.empty())
      throw Error(ErrorKind::input, missing);
    if (sample.encoder_output_tokens == 0) continue;
    const std::string found = "sample '" + sample.id + "': " + std::to_string(sample.encoder_output_tokens) +
                              " LLM tokens come from the encoder, ";
    if (sample.encoder().empty()) throw Error(ErrorKind::input, found + "to which it gives nothing");
    if (model.encoder.layers == 0) {
      throw Error(ErrorKind::input, found + "which model '" + model.name + "' lacks");
    }
  }
}

}  // namespace dflop
