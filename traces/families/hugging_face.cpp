#include "traces/families/hugging_face.hpp"

#include <algorithm>

#include "traces/families/config.hpp"

namespace dflop {
namespace {

constexpr std::string_view kInternVlChat = "internvl_chat";  // InternVL as OpenGVLab publishes it

ModelSpec read_family(const Config& root, ModelFamily family) {
  switch (family) {
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::llama:
      return read_text_model(root, family);
    case ModelFamily::llava:
    case ModelFamily::llava_next:
    case ModelFamily::llava_onevision:
      return read_llava(root, family);
    case ModelFamily::qwen2_vl:
    case ModelFamily::qwen2_5_vl:
    case ModelFamily::qwen3_vl:
      return read_qwen_vl(root, family);
    case ModelFamily::internvl:
      return read_internvl(root);
    case ModelFamily::qwen2_audio:
      return read_qwen2_audio(root);
  }
  return {};
}

/// Returns the max length of an LLM's sequences: from its config, but no more than the presets'.
std::int64_t most_positions(const Config& root) {
  constexpr std::string_view kKey = "max_position_embeddings";
  for (const std::string_view inner : {"text_config", "llm_config"}) {
    if (root.has(inner) && root.object(inner).has(kKey))
      return std::min<std::int64_t>(root.object(inner).at(kKey).integer<std::int64_t>(1), kConfigMaxTokens);
  }
  if (root.has("text_config") || !root.has(kKey)) return kConfigMaxTokens;
  return std::min<std::int64_t>(root.at(kKey).integer<std::int64_t>(1), kConfigMaxTokens);
}

bool is_chat(const Config& root) {
  return root.text("model_type", "") == kInternVlChat;
}

/// Tells whether the LLM's head is tied to its embedding. @param own_head  as in parse_hugging_face()
bool ties_embeddings(const Config& root, ModelFamily family, std::optional<bool> own_head) {
  if (own_head == true) return false;
  constexpr std::string_view kKey = "tie_word_embeddings";
  for (const std::string_view inner : {"text_config", "llm_config"}) {
    if (root.has(inner) && root.object(inner).flag(kKey, false)) return true;
  }
  return root.flag(kKey, family == ModelFamily::internvl && !is_chat(root));
}

}  // namespace

bool is_of_opengvlab(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  return is_chat(Config(document.root()));
}

ModelSpec parse_hugging_face(std::string_view json, const std::string& file, std::optional<bool> own_head) {
  const JsonDocument document(json, file);
  const Config root(document.root());
  if (root.has("quantization_config"))
    root.at("quantization_config").refuse_type("none, because quantized weights are not supported");
  const bool chat = is_chat(root);
  ModelSpec model =
      read_family(root, chat ? ModelFamily::internvl : root.at("model_type").choice<ModelFamily>());
  model.llm.tied_embeddings = ties_embeddings(root, model.architecture->family, own_head);
  model.name = file;
  model.max_tokens = most_positions(root);
  if (model.encoder.layers > 0 && model.connector.widths.back() != model.llm.hidden) {
    root.object("vision_config").at("out_hidden_size").refuse_type("the LLM's width {}", model.llm.hidden);
  }
  return model;
}

}  // namespace dflop
