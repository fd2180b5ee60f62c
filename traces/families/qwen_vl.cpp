// Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen2.5-Omni see pictures of any size as patches with 2-D rotary
// positions.
#include <cmath>
#include <vector>

#include "traces/families/config.hpp"

namespace dflop {
namespace {

/// Reads the sizes of the encoder. In Qwen2-VL, "hidden_size" is the LLM's width.
TransformerSpec read_sizes(const Config& vision, ModelFamily family) {
  if (family != ModelFamily::qwen2_vl) {
    const char* name = family == ModelFamily::qwen3_vl ? "qwen3-vl-vit" : "qwen2.5-vl-vit";
    return read_encoder(vision, name, "depth", "hidden_size", "intermediate_size", "num_heads");
  }
  TransformerSpec spec = read_encoder(vision, "qwen2-vl-vit", "depth", "embed_dim", "embed_dim", "num_heads");
  spec.ffn = static_cast<int>(spec.hidden * vision.number("mlp_ratio", 4));
  if (spec.ffn < 1 || spec.ffn > kMaxConfigWidth)
    vision.at("mlp_ratio").refuse_type("a ratio that gives a width of 1 to {}", kMaxConfigWidth);
  return spec;
}

/// Reads the base of the encoder's rotary positions.
double read_base(const Config& vision) {
  constexpr double kUsual = 10'000;
  if (!vision.has("rope_parameters")) return kUsual;
  const Config rope = vision.object("rope_parameters");
  const std::string_view key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string kind = rope.text(key, "axial");
  if (kind != "axial" && kind != "default") rope.at(key).refuse_type("\"axial\" or \"default\"");
  return rope.number("rope_theta", kUsual);
}

/// Reads which layers attend within windows, and the window's side in merged patches.
void read_windows(const Config& vision, TransformerSpec& encoder, LayerForm& form, PictureGeometry& picture) {
  form.windowed.assign(static_cast<std::size_t>(encoder.layers), true);
  for (const std::int64_t layer : vision.at("fullatt_block_indexes").integers(0, encoder.layers - 1)) {
    form.windowed[static_cast<std::size_t>(layer)] = false;
  }
  const int cell = picture.patch * picture.merge;
  const int window = vision.size("window_size", {}, kMaxTileSide);
  require_patches(vision, "window_size", window, cell);
  picture.window = window / cell;
}

/// Reads Qwen3-VL's square table of positions, and the layers that also feed the LLM.
void read_qwen3(const Config& vision, const ModelSpec& model, Architecture& of) {
  of.front.bias = true;
  of.front.table = vision.size("num_position_embeddings", {}, kMaxConfigWidth);
  of.front.spread_table = true;
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(of.front.table)));
  if (side * side != of.front.table) vision.at("num_position_embeddings").refuse_type("the square of a side");
  const JsonValue layers = vision.at("deepstack_visual_indexes");
  for (const std::int64_t layer : layers.integers(0, model.encoder.layers - 1)) {
    if (!of.deepstack.empty() && layer <= of.deepstack.back()) layers.refuse_type("increasing layers");
    of.deepstack.push_back(static_cast<int>(layer));
  }
  if (model.deep_features() > model.llm.layers)
    layers.refuse_type("at most as many layers as the LLM has, {}", model.llm.layers);
}

}  // namespace

ModelSpec read_qwen_vl(const Config& root, ModelFamily family) {
  const Config vision = root.object("vision_config");
  const bool omni = family == ModelFamily::qwen2_5_omni;
  const bool windows = family == ModelFamily::qwen2_5_vl || omni;
  ModelSpec model;
  model.preprocess = omni                              ? "qwen2.5-omni"
                     : windows                         ? "qwen2.5-vl"
                     : family == ModelFamily::qwen3_vl ? "qwen3-vl"
                                                       : "qwen2-vl";
  model.llm = read_inner_text(root, omni ? "qwen2_5_omni" : to_string(family));
  if (model.llm.form->rotary->sections.empty()) {
    root.at(root.has("text_config") ? "text_config" : "rope_scaling")
        .refuse("key 'mrope_section' is missing");
  }
  model.encoder = read_sizes(vision, family);
  if (model.encoder.head_dim % 4 != 0) {
    vision.at("num_heads")
        .refuse_type("heads whose width is a multiple of 4, because pairs are rotated along two axes");
  }
  LayerForm form;
  form.epsilon = 1e-6;
  if (windows) {
    vision.require("hidden_act", "silu");
    model.encoder.gated_mlp = true;
    form.norm = NormKind::rms;
    form.activation = Activation::swiglu;
  } else {
    form.activation =
        read_gelu(vision, "hidden_act", family == ModelFamily::qwen2_vl ? "quick_gelu" : "gelu_pytorch_tanh");
  }
  const int pairs = model.encoder.head_dim / 4;
  form.rotary = Rotary{.base = read_base(vision), .sections = {pairs, pairs}, .sections_restart = true};
  Architecture& of = model.architecture.emplace();
  of.family = family;
  of.picture.patch = vision.size("patch_size", {}, kMaxPatchSide);
  of.picture.temporal_patch = vision.size("temporal_patch_size", 2, kMaxPatchDepth);
  of.picture.merge = vision.size("spatial_merge_size", 2, kMaxMerge);
  if (windows) {
    read_windows(vision, model.encoder, form, of.picture);
    of.picture.positions_per_s =
        omni ? root.number("position_id_per_seconds", 25) : vision.number("tokens_per_second", 2);
  }
  model.encoder.form = form;
  of.front.values = 3 * of.picture.temporal_patch * of.picture.patch * of.picture.patch;
  of.connector.norm = form.norm;
  of.connector.epsilon = 1e-6;
  of.connector.activation = Activation::gelu_erf;
  const int merged = model.encoder.hidden * of.picture.merge * of.picture.merge;
  const int out = family == ModelFamily::qwen2_vl
                      ? vision.size("hidden_size", {}, kMaxConfigWidth)
                      : vision.size("out_hidden_size", model.llm.hidden, kMaxConfigWidth);
  model.connector = {{merged, merged, out}, of.picture.merge * of.picture.merge};
  if (family == ModelFamily::qwen3_vl) read_qwen3(vision, model, of);
  of.image_token = root.token("image_token_id", "image_token_index", model.llm.vocabulary);
  of.video_token = root.token("video_token_id", "video_token_index", model.llm.vocabulary);
  for (const std::string_view key :
       {"vision_start_token_id", "vision_end_token_id", "audio_start_token_id", "audio_end_token_id"})
    root.token(key, key, model.llm.vocabulary);
  return model;
}

}  // namespace dflop
