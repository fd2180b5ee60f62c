#include "backend/model/live_checks.hpp"

#include <string>

#include "backend/model/parameter_list.hpp"
#include "backend/model/synthetic.hpp"
#include "core/error.hpp"

namespace dflop {
namespace {

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
  require(widths.size() > 1, model,
          "expected a connector between encoder and LLM, found none; give at least one linear layer, as "
          "widths [" +
              std::to_string(model.encoder.hidden * model.connector.merge) + ", " +
              std::to_string(model.llm.hidden) + "]");
  require(widths.front() == model.encoder.hidden * model.connector.merge, model,
          "connector: expected the first width " +
              std::to_string(model.encoder.hidden * model.connector.merge) + ", which is " +
              std::to_string(model.connector.merge) + " x the encoder's, found " +
              std::to_string(widths.front()));
  require(widths.back() == model.llm.hidden, model,
          "connector: expected the last width " + std::to_string(model.llm.hidden) +
              ", which is the LLM's, found " + std::to_string(widths.back()));
}

}  // namespace

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
  if (model.encoder.layers > 0) stage_parameter_list(model, encoder, 0, kPatchValues);
  stage_parameter_list(model, llm, 0, kPatchValues);
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
