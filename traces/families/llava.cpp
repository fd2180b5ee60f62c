// LLaVA 1.5 and LLaVA-NeXT have CLIP as encoder, LLaVA-OneVision has SigLIP.
#include <algorithm>

#include "traces/families/config.hpp"

namespace dflop {
namespace {

/// Returns the number of encoder layers up to the one whose output the connector gets: an index from the
/// front or, if negative, from the end. 0 is the output before the first layer.
int feature_layers(const Config& root, int layers, int absent) {
  constexpr std::string_view kKey = "vision_feature_layer";
  if (!root.has(kKey)) return layers + 1 + absent;
  if (root.at(kKey).is_array())
    root.at(kKey).refuse_type("one layer, because joined layers are not supported");
  const int layer = root.at(kKey).integer(-layers, layers);
  const int used = layer < 0 ? layers + 1 + layer : layer;
  if (used < 1) root.at(kKey).refuse_type("a layer from 1 to {}, or from -{} to -1", layers, layers);
  return used;
}

/// Reads the form of the encoder's layers. The other arguments are its class's defaults.
LayerForm read_form(const Config& vision, double epsilon, const char* activation) {
  LayerForm form;
  form.epsilon = vision.number("layer_norm_eps", epsilon);
  form.activation = read_gelu(vision, "hidden_act", activation);
  form.rotary.reset();
  return form;
}

/// Reads the encoder, connector and LLM.
ModelSpec read_parts(const Config& root, const Config& vision, const char* encoder, std::string_view llm) {
  root.require_flag("multimodal_projector_bias", true);
  ModelSpec model;
  model.llm = read_inner_text(root, llm);
  model.encoder = read_encoder(vision, encoder, "num_hidden_layers", "hidden_size", "intermediate_size",
                               "num_attention_heads");
  model.connector = {{model.encoder.hidden, model.llm.hidden, model.llm.hidden}, 1};
  Architecture& of = model.architecture.emplace();
  of.connector.norm.reset();
  of.connector.activation = read_gelu(root, "projector_hidden_act", "gelu");
  of.image_token = root.token("image_token_index", "image_token_id", model.llm.vocabulary);
  return model;
}

/// Reads patches and tiles. Returns the number of patches on a tile's side; the remainder is not seen.
int read_tiles(const Config& vision, PictureGeometry& picture) {
  picture.patch = vision.size("patch_size", {}, kMaxPatchSide);
  picture.tile = read_side(vision, "image_size", kMaxTileSide);
  const int side = picture.tile / picture.patch;
  if (side < 1) vision.at("patch_size").refuse_type("at most the side of a tile, {}", picture.tile);
  return side;
}

void read_pinpoints(const Config& root, PictureGeometry& picture) {
  for (const JsonValue& pin : root.at("image_grid_pinpoints").elements()) {
    const std::vector<std::int64_t> sides = pin.integers(1, kMaxTileSide);
    if (sides.size() != 2) pin.refuse_type("a height and a width");
    picture.pinpoints.emplace_back(static_cast<int>(sides[0]), static_cast<int>(sides[1]));
  }
}

ModelSpec read_clip_llava(const Config& root, ModelFamily family) {
  const Config vision = root.object("vision_config");
  vision.require("model_type", "clip_vision_model");
  ModelSpec model = read_parts(root, vision, "clip", "llama");
  model.preprocess = family == ModelFamily::llava ? "llava-1.5" : "llava-next";
  model.encoder.layers = feature_layers(root, model.encoder.layers, -2);
  model.encoder.form = read_form(vision, 1e-5, "quick_gelu");
  Architecture& of = *model.architecture;
  of.family = family;
  const int side = read_tiles(vision, of.picture);
  of.front = {.values = 3 * of.picture.patch * of.picture.patch,
              .class_row = true,
              .table = std::int64_t{side} * side + 1,
              .norm = NormKind::layer};
  const std::string strategy = root.text("vision_feature_select_strategy", "default");
  of.connector.selects = strategy == "default";  // drops the class row
  if (strategy != "default" && (strategy != "full" || family == ModelFamily::llava_next)) {
    root.at("vision_feature_select_strategy")
        .refuse_type(family == ModelFamily::llava ? "\"default\" or \"full\"" : "\"default\"");
  }
  if (family == ModelFamily::llava_next) {
    of.newline = true;
    read_pinpoints(root, of.picture);
  }
  return model;
}

/// Reads the number of tiles in "anyres_max_9".
int most_tiles(const Config& root) {
  const std::string ratio = root.text("vision_aspect_ratio", "anyres_max_9");
  const std::string prefix = "anyres_max_";
  const auto digits = ratio.substr(std::min(ratio.size(), prefix.size()));
  if (!ratio.starts_with(prefix) || digits.empty() || digits.size() > 4 ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    root.at("vision_aspect_ratio").refuse_type("\"anyres_max_\" and a number of tiles");
  }
  return std::stoi(digits);
}

ModelSpec read_onevision(const Config& root) {
  const Config vision = root.object("vision_config");
  vision.require("model_type", "siglip_vision_model");
  root.require("vision_feature_select_strategy", "full");
  ModelSpec model = read_parts(root, vision, "siglip", "qwen2");
  model.preprocess = "llava-ov";
  if (feature_layers(root, model.encoder.layers, -1) != model.encoder.layers) {
    root.at("vision_feature_layer").refuse_type("-1, the encoder's last layer");
  }
  model.encoder.form = read_form(vision, 1e-6, "gelu_pytorch_tanh");
  Architecture& of = *model.architecture;
  of.family = ModelFamily::llava_onevision;
  const int side = read_tiles(vision, of.picture);
  of.front = {
      .values = 3 * of.picture.patch * of.picture.patch, .bias = true, .table = std::int64_t{side} * side};
  of.newline = true;
  read_pinpoints(root, of.picture);
  of.picture.most_tiles = most_tiles(root);
  of.video_token = root.token("video_token_index", "video_token_id", model.llm.vocabulary);
  return model;
}

}  // namespace

ModelSpec read_llava(const Config& root, ModelFamily family) {
  return family == ModelFamily::llava_onevision ? read_onevision(root) : read_clip_llava(root, family);
}

}  // namespace dflop
