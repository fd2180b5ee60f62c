// An architecture says what a released model computes beside its sizes: norms, biases, activations,
// positions, and how pictures or sounds become rows of the encoder. A model without one is computed in the
// form that presets have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/names.hpp"

namespace dflop {

enum class NormKind : std::uint8_t { layer, rms };

enum class Activation : std::uint8_t {
  gelu_tanh,
  gelu_erf,
  swiglu,  ///< gated: silu(gate) * up
};

/// A RopeScaling slows rotary positions down, the slower pairs more (Llama 3.1; transformers
/// modeling_rope_utils.py, "llama3").
struct RopeScaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 1;
  std::int64_t original_positions = 1;

  bool operator==(const RopeScaling&) const = default;
};

/// A Rotary says by which angles queries and keys are turned: pair i of a head by a row's position times
/// base^(-2 i / head_dim).
struct Rotary {
  double base = 10'000;
  std::optional<RopeScaling> scaling = std::nullopt;
  /// Of several positions a row, as time, height and width, the pairs that each turns, one run after the
  /// other; empty where a row has one position.
  std::vector<int> sections = {};
  /// Each section has the frequencies of a head of its own width (2-D positions of a picture), and not those
  /// of its pairs in the whole head (M-RoPE).
  bool sections_restart = false;

  int axes() const { return sections.empty() ? 1 : static_cast<int>(sections.size()); }
  bool operator==(const Rotary&) const = default;
};

/// A LayerForm says what the layers of one module compute.
struct LayerForm {
  NormKind norm = NormKind::layer;
  double epsilon = 1e-5;
  bool qkv_bias = true;
  bool key_bias = true;  ///< with qkv_bias: whether keys have one, too
  bool output_bias = true;
  bool mlp_bias = true;
  Activation activation = Activation::gelu_tanh;
  std::optional<Rotary> rotary = Rotary{};
  bool qk_norm = false;          ///< an RMS norm of queries and one of keys, over all heads together
  double qk_epsilon = 1e-6;      ///< of these two
  bool layer_scale = false;      ///< each half of a layer is multiplied with a learned vector
  double layer_scale_start = 1;  ///< values with which that begins
  /// Layers that attend within windows, by their place in the module; others see whole sequences. Empty:
  /// none.
  std::vector<bool> windowed = {};

  bool operator==(const LayerForm&) const = default;
};

/// Returns the form that presets have: without gates layer norms, GELU and biases, with gates RMS norms,
/// SwiGLU and no biases.
inline LayerForm preset_form(bool gated_mlp) {
  LayerForm form;
  if (!gated_mlp) return form;
  form.norm = NormKind::rms;
  form.qkv_bias = form.key_bias = form.output_bias = form.mlp_bias = false;
  form.activation = Activation::swiglu;
  return form;
}

/// A FrontKind says how what an encoder sees becomes its rows.
enum class FrontKind : std::uint8_t {
  patches,  ///< one linear layer of a patch's values
  sound,    ///< two convolutions of width 3 over frames with GELU, the second of stride 2
};

/// An EncoderFront is the begin of an encoder.
struct EncoderFront {
  FrontKind kind = FrontKind::patches;
  int values = 48;         ///< of a patch or frame
  bool bias = false;       ///< of patches; convolutions always have one
  bool class_row = false;  ///< each sequence begins with one learned row
  std::int64_t table = 0;  ///< rows of a table of positions; 0: none
  bool frozen_table = false;

  bool operator==(const EncoderFront&) const = default;
};

/// A ConnectorForm says what a connector computes.
struct ConnectorForm {
  bool selects = false;   ///< rows are first picked or averaged, as the content of a sequence says
  bool averages = false;  ///< the rows that a model merges are so averaged; else they lie side by side
  /// A norm comes before the first linear layer: of the encoder's rows or, where rows are selected, of what
  /// that layer gets.
  std::optional<NormKind> norm = NormKind::layer;
  double epsilon = 1e-5;
  Activation activation = Activation::gelu_tanh;

  bool operator==(const ConnectorForm&) const = default;
};

/// A ModelFamily is a class of models in transformers, by the model_type of its config.json.
enum class ModelFamily : std::uint8_t { qwen2, llama, llava_onevision, qwen2_5_vl, internvl, qwen2_audio };

template <>
inline constexpr NameTable<ModelFamily, 6> kNames<ModelFamily> = {
    {{ModelFamily::qwen2, "qwen2"},
     {ModelFamily::llama, "llama"},
     {ModelFamily::llava_onevision, "llava_onevision"},
     {ModelFamily::qwen2_5_vl, "qwen2_5_vl"},
     {ModelFamily::internvl, "internvl"},
     {ModelFamily::qwen2_audio, "qwen2_audio"}}};

/// A PictureGeometry says how pictures are cut for an encoder.
struct PictureGeometry {
  int patch = 0;               ///< side, pixels
  int temporal_patch = 1;      ///< frames
  int tile = 0;                ///< side of a tile, pixels; 0: pictures keep their ratio
  int merge = 1;               ///< side of the square of patches that the connector merges
  int window = 0;              ///< side of an attention window, merged patches; 0: none
  double positions_per_s = 0;  ///< of time, in videos; 0: frames have none
  std::vector<std::pair<int, int>> pinpoints = {};  ///< height and width of the grids of tiles, pixels
  int most_tiles = 0;  ///< of pinpoints: more rows are shrunk to those of so many tiles; 0: never

  bool operator==(const PictureGeometry&) const = default;
};

/// An Architecture is what a model has of its family beside the forms of its layers.
struct Architecture {
  ModelFamily family = ModelFamily::qwen2;
  EncoderFront front;
  ConnectorForm connector;
  PictureGeometry picture;
  bool newline = false;  ///< a learned row of the LLM ends rows of a picture
  std::int64_t image_token = -1;
  std::int64_t video_token = -1;
  std::int64_t audio_token = -1;

  /// Tells whether a token stands for a row of a picture, a video or a sound.
  bool is_medium(std::int64_t id) const {
    return id == image_token || id == video_token || id == audio_token;
  }

  bool operator==(const Architecture&) const = default;
};

}  // namespace dflop
