#include "traces/files/hugging_face.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

// Products of these sizes, and the parameters of all layers, fit into the integer types that count them.
constexpr int kMaxConfigSize = 1 << 24;  // for sizes without their own limit
constexpr int kMaxConfigLayers = 4096;
constexpr int kMaxConfigWidth = 1 << 20;
constexpr int kMaxConfigHeads = 1 << 14;
constexpr int kMaxConfigHeadDim = 1 << 12;
constexpr int kMaxPatchSide = 256;
constexpr int kMaxPatchDepth = 16;  // frames
constexpr int kMaxMerge = 16;       // side of a square of patches
constexpr int kMaxTileSide = 1 << 16;
constexpr std::int64_t kConfigMaxTokens = 32768;  // the presets' value, and the maximum

constexpr std::string_view kInternVlChat = "internvl_chat";  // InternVL as OpenGVLab publishes it

/// A Config is an object of a config.json; missing keys have defaults.
class Config {
 public:
  explicit Config(JsonValue json) : json_(std::move(json)) { json_.require_object(); }

  bool has(std::string_view key) const { return json_.has(key) && json_.at(key).text() != "null"; }
  JsonValue at(std::string_view key) const { return json_.at(key); }
  Config object(std::string_view key) const { return Config(json_.at(key)); }

  int size(std::string_view key, std::optional<int> absent = {}, int most = kMaxConfigSize) const {
    if (!has(key) && absent) return *absent;
    return json_.at(key).integer(1, most);
  }
  double number(std::string_view key, double absent) const {
    return has(key) ? json_.at(key).number_in(1e-12, 1e12) : absent;
  }
  bool flag(std::string_view key, bool absent) const { return has(key) ? json_.at(key).boolean() : absent; }
  std::string text(std::string_view key, const std::string& absent) const {
    return has(key) ? json_.at(key).string() : absent;
  }
  std::int64_t token(std::string_view key, std::string_view other_key) const {
    const std::string_view found = has(key) ? key : other_key;
    return has(found) ? json_.at(found).integer<std::int64_t>(0, kMaxConfigSize) : -1;
  }

  /// Rejects a present key with any other value.
  void require(std::string_view key, const std::string& expected) const {
    if (has(key) && json_.at(key).string() != expected) json_.at(key).refuse_type("\"{}\"", expected);
  }
  void require_flag(std::string_view key, bool expected) const {
    if (has(key) && json_.at(key).boolean() != expected) {
      json_.at(key).refuse_type("{}, because nothing else is supported", expected ? "true" : "false");
    }
  }
  void require_number(std::string_view key, double expected) const {
    if (has(key) && json_.at(key).number() != expected)
      json_.at(key).refuse_type("{}, because nothing else is supported", expected);
  }
  /// Rejects models that drop parts at random in training.
  void require_no_dropout() const {
    for (const std::string_view key : {"attention_dropout", "dropout", "activation_dropout",
                                       "hidden_dropout_prob", "projection_dropout", "encoder_layerdrop"}) {
      require_number(key, 0);
    }
  }

 private:
  JsonValue json_;
};

Activation read_gelu(const Config& config, std::string_view key, const std::string& absent) {
  const std::string name = config.text(key, absent);
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  config.at(key).refuse_type("\"gelu\" or \"gelu_pytorch_tanh\"");
}

/// Reads rotary positions: "rope_parameters" of transformers 5, or the older "rope_theta" and "rope_scaling".
Rotary read_rotary(const Config& config, double absent_base) {
  Rotary rotary;
  const std::string_view key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (config.has("rope_parameters") && config.has("rope_scaling") &&
      config.at("rope_parameters").text() != config.at("rope_scaling").text()) {
    config.at("rope_scaling").refuse("expected this key or 'rope_parameters', found both, and they differ");
  }
  rotary.base = config.number("rope_theta", absent_base);
  if (!config.has(key)) return rotary;
  const Config rope = config.object(key);
  rotary.base = rope.number("rope_theta", rotary.base);
  rope.require_number("partial_rotary_factor", 1);
  const std::string_view kind_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string kind = rope.text(kind_key, "default");
  if (kind == "llama3") {
    rotary.scaling = RopeScaling{rope.number("factor", 1), rope.number("low_freq_factor", 1),
                                 rope.number("high_freq_factor", 4),
                                 rope.at("original_max_position_embeddings").integer<std::int64_t>(1)};
    if (rotary.scaling->high_frequency_factor <= rotary.scaling->low_frequency_factor) {
      rope.at("high_freq_factor").refuse_type("more than low_freq_factor");
    }
  } else if (kind != "default" && kind != "mrope" &&
             kind != "dynamic") {  // which only scales beyond the longest length
    rope.at(kind_key).refuse_type(
        "\"default\", \"dynamic\", \"llama3\" or \"mrope\", because no other scaling is supported");
  }
  if (rope.has("mrope_section")) {
    for (const std::int64_t pairs : rope.at("mrope_section").integers(1, kMaxConfigHeadDim)) {
      rotary.sections.push_back(static_cast<int>(pairs));
    }
  }
  return rotary;
}

/// TextDefaults are the default sizes of a text model's class.
struct TextDefaults {
  int hidden = 4096;
  int ffn = 22016;
  int layers = 32;
  int heads = 32;
  int vocabulary = 151936;
  double epsilon = 1e-6;
};
constexpr TextDefaults kLlamaDefaults{4096, 11008, 32, 32, 32000, 1e-6};

/// Reads the LLM. `rotary_base`: the default if the config has none.
TransformerSpec read_text(const Config& config, bool llama, double rotary_base = 10'000) {
  const TextDefaults defaults = llama ? kLlamaDefaults : TextDefaults{};
  config.require("hidden_act", "silu");
  config.require_flag("use_sliding_window", false);
  if (!llama) config.require_flag("mlp_bias", false);
  config.require_no_dropout();
  config.require_number("partial_rotary_factor", 1);
  if (config.has("layer_types")) {
    for (const JsonValue& type : config.at("layer_types").elements()) {
      if (type.string() != "full_attention")
        type.refuse_type(
            "\"full_attention\", because windows are not "
            "supported");
    }
  }
  TransformerSpec spec;
  spec.name = llama ? "llama" : "qwen2";
  spec.layers = config.size("num_hidden_layers", defaults.layers, kMaxConfigLayers);
  spec.hidden = config.size("hidden_size", defaults.hidden, kMaxConfigWidth);
  spec.ffn = config.size("intermediate_size", defaults.ffn, kMaxConfigWidth);
  spec.heads = config.size("num_attention_heads", defaults.heads, kMaxConfigHeads);
  spec.kv_heads = config.size("num_key_value_heads", spec.heads, kMaxConfigHeads);
  spec.vocabulary = config.size("vocab_size", defaults.vocabulary);
  if (spec.heads % spec.kv_heads != 0) {
    config.at("num_key_value_heads").refuse_type("a divisor of the {} heads", spec.heads);
  }
  if (!config.has("head_dim") && spec.hidden % spec.heads != 0) {
    config.at("num_attention_heads").refuse_type("a divisor of the width {}", spec.hidden);
  }
  if (!config.has("head_dim") && spec.hidden / spec.heads > kMaxConfigHeadDim) {
    config.at("num_attention_heads").refuse_type("heads of a width of at most {}", kMaxConfigHeadDim);
  }
  spec.head_dim = config.size("head_dim", spec.hidden / spec.heads, kMaxConfigHeadDim);
  spec.gated_mlp = spec.causal = true;
  spec.logits_at_once = kLogitsAtOnce;
  LayerForm form = preset_form(true);
  form.epsilon = config.number("rms_norm_eps", defaults.epsilon);
  form.output_bias = llama && config.flag("attention_bias", false);
  form.qkv_bias = form.key_bias = !llama || form.output_bias;
  form.mlp_bias = llama && config.flag("mlp_bias", false);
  form.rotary = read_rotary(config, rotary_base);
  if (!form.rotary->sections.empty()) {
    std::int64_t pairs = 0;
    for (const int section : form.rotary->sections) pairs += section;
    if (2 * pairs != spec.head_dim || form.rotary->sections.size() != 3) {
      config.at(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling")
          .refuse_type("an \"mrope_section\" of three parts that add up to {} pairs", spec.head_dim / 2);
    }
  }
  spec.form = form;
  return spec;
}

/// Returns the text model inside a multimodal model.
TransformerSpec read_inner_text(const Config& root, double rotary_base = 10'000) {
  if (!root.has("text_config")) return read_text(root, false, rotary_base);
  const Config config = root.object("text_config");
  const std::string kind = config.text("model_type", "qwen2");
  if (kind != "qwen2" && kind != "llama" && kind != "qwen2_5_vl_text" && kind != "qwen2_5_vl") {
    config.at("model_type").refuse_type("\"qwen2\" or \"llama\"");
  }
  return read_text(config, kind == "llama", rotary_base);
}

/// Reads the sizes of an encoder, from the keys that its class uses.
TransformerSpec read_encoder(const Config& config, const std::string& name, std::string_view layers,
                             std::string_view hidden, std::string_view ffn, std::string_view heads) {
  config.require_no_dropout();
  for (const std::string_view key : {"num_channels", "in_channels", "in_chans"})
    config.require_number(key, 3);
  TransformerSpec spec;
  spec.name = name;
  spec.layers = config.size(layers, {}, kMaxConfigLayers);
  spec.hidden = config.size(hidden, {}, kMaxConfigWidth);
  spec.ffn = config.size(ffn, {}, kMaxConfigWidth);
  spec.heads = spec.kv_heads = config.size(heads, {}, kMaxConfigHeads);
  if (spec.hidden % spec.heads != 0) config.at(heads).refuse_type("a divisor of the width {}", spec.hidden);
  spec.head_dim = spec.hidden / spec.heads;
  return spec;
}

/// Reads a key whose value may be a pair of equal sizes, as for pictures.
int read_side(const Config& config, std::string_view key, int most) {
  if (!config.at(key).is_array()) return config.size(key, {}, most);
  const std::vector<std::int64_t> sides = config.at(key).integers(1, most);
  if (sides.size() != 2 || sides[0] != sides[1]) config.at(key).refuse_type("two equal sides");
  return static_cast<int>(sides[0]);
}

void require_patches(const Config& config, std::string_view key, int side, int patch) {
  if (side % patch != 0) config.at(key).refuse_type("a multiple of the patches' side {}", patch);
}

ModelSpec read_text_model(const Config& root, ModelFamily family) {
  ModelSpec model;
  model.preprocess = "text";
  model.llm = read_text(root, family == ModelFamily::llama);
  model.architecture.emplace();
  model.architecture->family = family;
  return model;
}

ModelSpec read_llava_onevision(const Config& root) {
  const Config vision = root.object("vision_config");
  vision.require("model_type", "siglip_vision_model");
  root.require("vision_feature_select_strategy", "full");
  root.require_flag("multimodal_projector_bias", true);
  if (root.has("vision_feature_layer") && root.at("vision_feature_layer").integer(-kMaxConfigLayers) != -1) {
    root.at("vision_feature_layer").refuse_type("-1, the encoder's last layer");
  }
  ModelSpec model;
  model.preprocess = "llava-ov";
  model.llm = read_inner_text(root);
  model.encoder = read_encoder(vision, "siglip", "num_hidden_layers", "hidden_size", "intermediate_size",
                               "num_attention_heads");
  LayerForm form;
  form.epsilon = vision.number("layer_norm_eps", 1e-6);
  form.activation = read_gelu(vision, "hidden_act", "gelu_pytorch_tanh");
  form.rotary.reset();
  model.encoder.form = form;
  model.connector = {{model.encoder.hidden, model.llm.hidden, model.llm.hidden}, 1};
  Architecture& of = model.architecture.emplace();
  of.family = ModelFamily::llava_onevision;
  of.picture.patch = vision.size("patch_size", {}, kMaxPatchSide);
  of.picture.tile = read_side(vision, "image_size", kMaxTileSide);
  const int side = of.picture.tile / of.picture.patch;  // the remainder is not seen
  if (side < 1) vision.at("patch_size").refuse_type("at most the side of a tile, {}", of.picture.tile);
  of.front = {
      .values = 3 * of.picture.patch * of.picture.patch, .bias = true, .table = std::int64_t{side} * side};
  of.connector.norm.reset();
  of.connector.activation = read_gelu(root, "projector_hidden_act", "gelu");
  of.newline = true;
  for (const JsonValue& pin : root.at("image_grid_pinpoints").elements()) {
    const std::vector<std::int64_t> sides = pin.integers(1, kMaxTileSide);
    if (sides.size() != 2) pin.refuse_type("a height and a width");
    of.picture.pinpoints.emplace_back(static_cast<int>(sides[0]), static_cast<int>(sides[1]));
  }
  const std::string ratio = root.text("vision_aspect_ratio", "anyres_max_9");
  const std::string prefix = "anyres_max_";
  const auto digits = ratio.substr(std::min(ratio.size(), prefix.size()));
  if (!ratio.starts_with(prefix) || digits.empty() || digits.size() > 4 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    root.at("vision_aspect_ratio").refuse_type("\"anyres_max_\" and a number of tiles");
  }
  of.picture.most_tiles = std::stoi(digits);
  of.image_token = root.token("image_token_index", "image_token_id");
  of.video_token = root.token("video_token_index", "video_token_id");
  return model;
}

ModelSpec read_qwen25_vl(const Config& root) {
  const Config vision = root.object("vision_config");
  vision.require("hidden_act", "silu");
  ModelSpec model;
  model.preprocess = "qwen2.5-vl";
  model.llm = read_inner_text(root, 1'000'000);
  if (model.llm.form->rotary->sections.empty()) {
    root.at(root.has("text_config") ? "text_config" : "rope_scaling")
        .refuse("key 'mrope_section' is missing");
  }
  model.encoder =
      read_encoder(vision, "qwen2.5-vl-vit", "depth", "hidden_size", "intermediate_size", "num_heads");
  model.encoder.gated_mlp = true;
  if (model.encoder.head_dim % 4 != 0) {
    vision.at("num_heads")
        .refuse_type(
            "heads whose width is a multiple of 4, because pairs are rotated "
            "along two axes");
  }
  LayerForm form;
  form.norm = NormKind::rms;
  form.epsilon = 1e-6;
  form.activation = Activation::swiglu;
  const int pairs = model.encoder.head_dim / 4;
  double base = 10'000;
  if (vision.has("rope_parameters")) {
    const Config rope = vision.object("rope_parameters");
    const std::string kind = rope.text(rope.has("rope_type") ? "rope_type" : "type", "axial");
    if (kind != "axial" && kind != "default") {  // transformers treats this as axial
      rope.at(rope.has("rope_type") ? "rope_type" : "type").refuse_type("\"axial\" or \"default\"");
    }
    base = rope.number("rope_theta", base);
  }
  form.rotary = Rotary{.base = base, .sections = {pairs, pairs}, .sections_restart = true};
  form.windowed.assign(static_cast<std::size_t>(model.encoder.layers), true);
  for (const std::int64_t layer : vision.at("fullatt_block_indexes").integers(0, model.encoder.layers - 1)) {
    form.windowed[static_cast<std::size_t>(layer)] = false;
  }
  model.encoder.form = form;
  Architecture& of = model.architecture.emplace();
  of.family = ModelFamily::qwen2_5_vl;
  of.picture.patch = vision.size("patch_size", {}, kMaxPatchSide);
  of.picture.temporal_patch = vision.size("temporal_patch_size", 2, kMaxPatchDepth);
  of.picture.merge = vision.size("spatial_merge_size", 2, kMaxMerge);
  const int cell = of.picture.patch * of.picture.merge;
  const int window = vision.size("window_size", {}, kMaxTileSide);
  require_patches(vision, "window_size", window, cell);
  of.picture.window = window / cell;
  of.picture.positions_per_s = vision.number("tokens_per_second", 2);
  of.front.values = 3 * of.picture.temporal_patch * of.picture.patch * of.picture.patch;
  of.connector.norm = NormKind::rms;
  of.connector.epsilon = 1e-6;
  of.connector.activation = Activation::gelu_erf;
  const int merged = model.encoder.hidden * of.picture.merge * of.picture.merge;
  model.connector = {{merged, merged, vision.size("out_hidden_size", model.llm.hidden, kMaxConfigWidth)},
                     of.picture.merge * of.picture.merge};
  of.image_token = root.token("image_token_id", "image_token_index");
  of.video_token = root.token("video_token_id", "video_token_index");
  return model;
}

/// Returns the text model under "llm_config" of a model published by OpenGVLab, which uses that class.
TransformerSpec read_chat_text(const Config& root) {
  const Config config = root.object("llm_config");
  const std::string kind = config.text("model_type", "");
  if (kind != "qwen2" && kind != "llama") config.at("model_type").refuse_type("\"qwen2\" or \"llama\"");
  return read_text(config, kind == "llama");
}

/// Reads InternVL, in transformers' form or as published by OpenGVLab ("internvl_chat"), whose code has other
/// keys and defaults (configuration_internvl_chat.py, configuration_intern_vit.py).
ModelSpec read_internvl(const Config& root) {
  const bool chat = root.has("llm_config");
  const Config vision = root.object("vision_config");
  root.require("vision_feature_select_strategy", "default");
  root.require("ps_version", "v2");
  vision.require_flag("use_absolute_position_embeddings", true);
  vision.require_flag("use_mask_token", false);
  const std::string_view layer = chat ? "select_layer" : "vision_feature_layer";
  if (root.has(layer) && root.at(layer).integer(-kMaxConfigLayers) != -1) {
    root.at(layer).refuse_type("-1, the encoder's last layer");
  }
  ModelSpec model;
  model.preprocess = "internvl2.5";
  model.llm = chat ? read_chat_text(root) : read_inner_text(root);
  model.encoder = read_encoder(vision, "internvit", "num_hidden_layers", "hidden_size", "intermediate_size",
                               "num_attention_heads");
  LayerForm form;
  const std::string norm = vision.text("norm_type", chat ? "rms_norm" : "layer_norm");
  if (norm != "layer_norm" && norm != "rms_norm") {
    vision.at("norm_type").refuse_type("\"layer_norm\" or \"rms_norm\"");
  }
  form.norm = norm == "rms_norm" ? NormKind::rms : NormKind::layer;
  form.epsilon = vision.number("layer_norm_eps", 1e-6);
  form.qkv_bias = form.key_bias = vision.flag(chat ? "qkv_bias" : "attention_bias", false);
  form.activation = read_gelu(vision, "hidden_act", "gelu");
  form.rotary.reset();
  form.qk_norm = vision.flag(chat ? "qk_normalization" : "use_qk_norm", chat);
  if (chat) form.qk_epsilon = form.epsilon;  // transformers always uses 1e-6
  form.layer_scale = true;
  form.layer_scale_start = vision.number(chat ? "initializer_factor" : "layer_scale_init_value", 0.1);
  model.encoder.form = form;
  Architecture& of = model.architecture.emplace();
  of.family = ModelFamily::internvl;
  of.picture.patch = read_side(vision, "patch_size", kMaxPatchSide);
  of.picture.tile = read_side(vision, "image_size", kMaxTileSide);
  require_patches(vision, "image_size", of.picture.tile, of.picture.patch);
  if (root.has("force_image_size") && root.size("force_image_size") != of.picture.tile) {
    root.at("force_image_size").refuse_type("the encoder's image_size {}", of.picture.tile);
  }
  const double ratio = root.number("downsample_ratio", 0.5);
  of.picture.merge = static_cast<int>(std::lround(std::min(1 / ratio, 2.0 * kMaxMerge)));
  const int side = of.picture.tile / of.picture.patch;
  if (of.picture.merge < 1 || of.picture.merge > kMaxMerge || of.picture.merge * ratio != 1 ||
      side % of.picture.merge != 0) {
    root.at("downsample_ratio").refuse_type("one over a divisor of the {} patches of a tile's side", side);
  }
  of.front = {.values = 3 * of.picture.patch * of.picture.patch,
              .bias = true,
              .class_row = true,
              .table = std::int64_t{side} * side + 1};
  of.connector.selects = true;
  of.connector.norm = NormKind::layer;
  of.connector.epsilon = 1e-5;
  of.connector.activation = read_gelu(root, "projector_hidden_act", "gelu");
  const int merged = of.picture.merge * of.picture.merge;
  model.connector = {{merged * model.encoder.hidden, model.llm.hidden, model.llm.hidden}, merged};
  of.image_token = root.token("image_token_id", "image_token_index");
  return model;
}

ModelSpec read_qwen2_audio(const Config& root) {
  const Config audio = root.object("audio_config");
  audio.require("activation_function", "gelu");
  audio.require_flag("scale_embedding", false);
  ModelSpec model;
  model.preprocess = "qwen2-audio";
  model.llm = read_inner_text(root);
  model.encoder = read_encoder(audio, "whisper", "encoder_layers", "d_model", "encoder_ffn_dim",
                               "encoder_attention_heads");
  LayerForm form;
  form.key_bias = false;
  form.activation = Activation::gelu_erf;
  form.rotary.reset();
  model.encoder.form = form;
  Architecture& of = model.architecture.emplace();
  of.family = ModelFamily::qwen2_audio;
  of.front = {.kind = FrontKind::sound,
              .values = audio.size("num_mel_bins", 128, 512),
              .bias = true,
              .table = audio.size("max_source_positions", 1500, kMaxConfigWidth),
              .frozen_table = true};
  of.connector.selects = of.connector.averages = true;
  of.connector.norm = NormKind::layer;
  of.connector.epsilon = 1e-5;
  model.connector = {{model.encoder.hidden, model.llm.hidden}, 2};
  of.audio_token = root.token("audio_token_index", "audio_token_id");
  return model;
}

ModelSpec read_family(const Config& root, ModelFamily family) {
  switch (family) {
    case ModelFamily::qwen2:
    case ModelFamily::llama:
      return read_text_model(root, family);
    case ModelFamily::llava_onevision:
      return read_llava_onevision(root);
    case ModelFamily::qwen2_5_vl:
      return read_qwen25_vl(root);
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
