#include "traces/families/hugging_face.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/refuse.hpp"
#include "core/support/did_you_mean.hpp"
#include "traces/families/config.hpp"

namespace dflop {
namespace {

constexpr std::string_view kOmni = "qwen2_5_omni";
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
    case ModelFamily::qwen2_5_omni:
      return read_qwen2_5_omni(root);
  }
  return {};
}

/// Returns the max length of an LLM's sequences by its config, or the presets' if it has none. With longrope,
/// the factors that are read hold for the original length.
std::int64_t most_positions(const Config& root) {
  Config text = root;
  for (const std::string_view inner : {"text_config", "llm_config"}) {
    if (root.has(inner)) text = root.object(inner);
  }
  std::optional<std::int64_t> most;
  const auto limit = [&](const Config& config, std::string_view key) {
    if (!config.has(key)) return;
    const auto length = config.at(key).integer<std::int64_t>(1);
    most = std::min(most.value_or(length), length);
  };
  limit(text, "max_position_embeddings");
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    if (!text.has(key)) continue;
    const Config rope = text.object(key);
    if (rope.text("rope_type", rope.text("type", "")) != "longrope") continue;
    limit(text, "original_max_position_embeddings");
    limit(rope, "original_max_position_embeddings");
  }
  return most.value_or(kConfigMaxTokens);
}

/// Returns the object that describes the trained model: in a config of Qwen2.5-Omni, which also speaks, its
/// thinker.
Config trained_part(const Config& root) {
  if (root.text("model_type", "") != kOmni) return root;
  return root.object("thinker_config");
}

bool is_chat(const Config& root) {
  return root.text("model_type", "") == kInternVlChat;
}

/// Tells whether the LLM's head is tied to its embedding. @param own_head  as in parse_hugging_face()
bool ties_embeddings(const Config& root, ModelFamily family, std::optional<bool> own_head) {
  constexpr std::string_view kKey = "tie_word_embeddings";
  bool ties = root.flag(kKey, family == ModelFamily::internvl && !is_chat(root));
  for (const std::string_view inner : {"text_config", "llm_config"})
    ties = (root.has(inner) && root.object(inner).flag(kKey, false)) || ties;
  return ties && own_head != true;
}

/// These keys do not change what a model computes in training, or repeat what other keys and files say.
constexpr std::string_view kWithoutEffect[] = {
    // of the library and of saving
    "architectures", "auto_map", "dtype", "model_type", "name_or_path", "_name_or_path", "torch_dtype",
    "transformers_version", "_commit_hash", "_attn_implementation", "_attn_implementation_autoset",
    "attn_implementation", "use_flash_attn",
    // of generation
    "bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "max_length", "temperature", "top_k",
    "top_p", "do_sample", "ignore_index", "keys_to_ignore_at_inference",
    // of new weights
    "initializer_range", "initializer_factor",
    // of parts that are not used in training, or whose size weights and other keys say
    "max_window_layers", "sliding_window", "pretraining_tp", "projection_dim", "vision_use_head",
    "use_mean_pooling", "image_seq_length", "video_seq_length", "vision_token_id", "spatial_patch_size",
    "user_token_id", "talker_config", "token2wav_config", "enable_audio_output", "enable_talker", "n_window",
    "output_dim", "drop_path_rate", "use_thumbnail", "dynamic_image_size", "min_dynamic_patch",
    "max_dynamic_patch", "template", "use_mrope", "use_backbone_lora", "use_llm_lora", "pad2square",
    "system_message", "vocab_size"};

bool has_no_effect(const std::string& key) {
  const std::string_view name = std::string_view(key).substr(key.rfind('.') + 1);
  return std::ranges::find(kWithoutEffect, name) != std::end(kWithoutEffect);
}

/// Adds the keys of an object that are not read and may have an effect. Objects of which no key is read are
/// listed as one key.
void list_unknown(const JsonValue& object, const std::string& path, const ConfigUse& use,
                  std::vector<std::string>& unknown) {
  for (const auto& [name, value] : object.members()) {
    const std::string key = path + name;
    if (value.text().starts_with('{') && use.read.count(key) > 0) {
      list_unknown(value, key + '.', use, unknown);
    } else if (use.read.count(key) == 0 && !has_no_effect(key) && value.text() != "null") {
      unknown.push_back(key);
    }
  }
}

/// Rejects a key that looks like a missing key of the same object with a typing mistake.
void refuse_misspelled(const std::string& key, const ConfigUse& use, const std::string& file) {
  const std::size_t begin = key.rfind('.') + 1;
  std::vector<std::string_view> missing;
  for (const auto& [name, value] : use.defaults) {
    if (name.rfind('.') + 1 == begin && name.starts_with(key.substr(0, begin)))
      missing.push_back(std::string_view(name).substr(begin));
  }
  const std::string hint = did_you_mean(key.substr(begin), missing);
  if (!hint.empty()) refuse_input(file, "key '{}' is not known{}", key, hint);
}

/// Returns whether some family has an encoder or LLM of this model_type. Parts of a multimodal model are
/// often named like the model, with an ending.
bool is_known_part(std::string_view kind) {
  constexpr std::string_view kKnown[] = {"llama",
                                         "mistral",
                                         "qwen2",
                                         "qwen3",
                                         "qwen2_vl",
                                         "qwen2_5_vl",
                                         "qwen3_vl",
                                         "siglip_vision_model",
                                         "internvl",
                                         "intern_vit_6b",
                                         "qwen2_audio",
                                         "qwen2_5_omni",
                                         "clip_vision_model"};
  for (const std::string_view ending : {"_text", "_vision", "_encoder"}) {
    if (kind.ends_with(ending)) kind.remove_suffix(ending.size());
  }
  return std::ranges::find(kKnown, kind) != std::end(kKnown);
}

/// Rejects a family that is not known, and says which of its parts are.
[[noreturn]] void refuse_family(const Config& root, const std::string& found) {
  std::string parts;
  for (const std::string_view part : {"text_config", "llm_config", "vision_config", "audio_config"}) {
    if (!root.has(part) || !root.object(part).has("model_type")) continue;
    const std::string kind = root.object(part).text("model_type", "");
    parts += fmt::format("{} {} \"{}\" is {}", parts.empty() ? ";" : ",", part, kind,
                         is_known_part(kind) ? "known" : "not known");
  }
  const bool experts = found.find("moe") != std::string::npos || found == "mixtral" || found == "deepseek_v3";
  root.at("model_type")
      .refuse("expected one of {}, found \"{}\"{}{}", fmt::join(names_of(all_of<ModelFamily>()), ", "), found,
              experts ? "; LLMs with experts are not supported yet" : "", parts);
}

ModelFamily family_of(const Config& root) {
  if (is_chat(root)) return ModelFamily::internvl;
  const std::string found = root.at("model_type").string();
  for (const ModelFamily family : all_of<ModelFamily>()) {
    if (to_string(family) == found) return family;
  }
  refuse_family(root, found);
}

}  // namespace

bool is_of_opengvlab(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  ConfigUse use;
  return is_chat(Config(document.root(), use));
}

ModelSpec parse_hugging_face(std::string_view json, const std::string& file, std::optional<bool> own_head,
                             ConfigReport* report) {
  const JsonDocument document(json, file);
  ConfigUse use;
  const Config root = trained_part(Config(document.root(), use));
  if (root.has("quantization_config"))
    root.at("quantization_config").refuse_type("none, because quantized weights are not supported");
  ModelSpec model = read_family(root, family_of(root));
  model.llm.tied_embeddings = ties_embeddings(root, model.architecture->family, own_head);
  model.name = file;
  const std::int64_t positions = most_positions(root);
  model.max_tokens = std::min(positions, kConfigMaxTokens);
  if (model.encoder.layers > 0 && model.connector.widths.back() != model.llm.hidden) {
    root.object("vision_config").at("out_hidden_size").refuse_type("the LLM's width {}", model.llm.hidden);
  }
  std::vector<std::string> unknown;
  list_unknown(document.root(), "", use, unknown);
  for (const std::string& key : unknown) refuse_misspelled(key, use, file);
  if (report != nullptr) {
    report->unknown = std::move(unknown);
    report->positions = positions;
    report->defaults.assign(use.defaults.begin(), use.defaults.end());
  }
  return model;
}

}  // namespace dflop
