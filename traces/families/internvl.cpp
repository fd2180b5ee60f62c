#include <algorithm>
#include <cmath>

#include "traces/families/config.hpp"

namespace dflop {
namespace {

/// Returns the text model under "llm_config" of a model published by OpenGVLab, which uses that class.
TransformerSpec read_chat_text(const Config& root) {
  const Config config = root.object("llm_config");
  const std::string kind = config.text("model_type", "");
  return read_text(config, kind);
}

}  // namespace

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
  model.llm = chat ? read_chat_text(root) : read_inner_text(root, "qwen2");
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
  if (vision.flag(chat ? "qk_normalization" : "use_qk_norm", chat)) form.qk_norm = QkNormKind::all_heads;
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
  of.image_token = root.token("image_token_id", "image_token_index", model.llm.vocabulary);
  return model;
}

}  // namespace dflop
