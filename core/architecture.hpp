// An Architecture describes how a released model computes, apart from its sizes: norms, biases, activations,
// positions, and how pictures or sounds become rows of the encoder. Models without one are computed in the
// presets' form.
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
  gelu_quick,  ///< x sigmoid(1.702 x) (CLIP)
  swiglu,      ///< gated: silu(gate) * up
};

/// A QkNormKind says which RMS norms queries and keys have before rotation.
enum class QkNormKind : std::uint8_t {
  none,
  all_heads,  ///< one norm over the queries of all heads, one over the keys (InternViT-6B)
  each_head,  ///< a norm over each head; all heads of queries share its factors, and all of keys (Qwen3)
};

/// A RopeScaling slows the rotation of pairs down, and more for pairs that rotate slowly (Llama 3.1;
/// transformers modeling_rope_utils.py, "llama3").
struct RopeScaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 1;
  std::int64_t original_positions = 1;

  bool operator==(const RopeScaling&) const = default;
};

/// A Rotary sets the angles by which queries and keys are rotated. The angle of pair i of a head is the row's
/// position times base^(-2 i / head_dim).
struct Rotary {
  double base = 10'000;
  std::optional<RopeScaling> scaling = std::nullopt;
  /// If a row has several positions, such as time, height and width, these are the numbers of pairs that each
  /// of them rotates, in order. Empty if a row has one position.
  std::vector<int> sections = {};
  /// True: the second and third axis of M-RoPE rotate every third pair, from the first or second one on, as
  /// far as their sections reach; the first axis rotates all other pairs (Qwen3-VL).
  bool sections_interleave = false;
  /// True: each section rotates like a head of the section's width (2-D positions of a picture). False: its
  /// pairs rotate with their frequencies in the whole head (M-RoPE).
  bool sections_restart = false;

  /// Each pair's frequency is multiplied by its factor (transformers' "linear", "yarn" and "longrope").
  /// Empty: by one.
  std::vector<double> factors = {};
  double magnitude = 1;  ///< multiplies cosines and sines (YaRN, LongRoPE)

  int axes() const { return sections.empty() ? 1 : static_cast<int>(sections.size()); }
  bool operator==(const Rotary&) const = default;
};

/// A LayerForm describes what the layers of one module compute.
struct LayerForm {
  NormKind norm = NormKind::layer;
  double epsilon = 1e-5;
  bool qkv_bias = true;
  bool key_bias = true;  ///< with qkv_bias: whether keys have a bias
  bool output_bias = true;
  bool mlp_bias = true;
  Activation activation = Activation::gelu_tanh;
  std::optional<Rotary> rotary = Rotary{};
  QkNormKind qk_norm = QkNormKind::none;
  double qk_epsilon = 1e-6;      ///< epsilon of the norms of qk_norm
  bool layer_scale = false;      ///< the outputs of attention and MLP are each multiplied by a learned vector
  double layer_scale_start = 1;  ///< initial values of that vector
  /// Element i says whether layer i of the module attends only within windows instead of to whole sequences.
  /// Empty: no layer has windows.
  std::vector<bool> windowed = {};

  bool operator==(const LayerForm&) const = default;
};

/// Returns the form of the presets' layers. With a gated MLP they have RMS norms, SwiGLU and no biases;
/// otherwise layer norms, GELU and biases.
inline LayerForm preset_form(bool gated_mlp) {
  LayerForm form;
  if (!gated_mlp) return form;
  form.norm = NormKind::rms;
  form.qkv_bias = form.key_bias = form.output_bias = form.mlp_bias = false;
  form.activation = Activation::swiglu;
  return form;
}

/// A FrontKind says how an encoder's input becomes its rows.
enum class FrontKind : std::uint8_t {
  patches,  ///< one linear layer of a patch's values
  sound,    ///< two convolutions of width 3 over frames, with GELU, the second with stride 2
};

/// An EncoderFront describes the part of an encoder before its first layer.
struct EncoderFront {
  FrontKind kind = FrontKind::patches;
  int values = 48;         ///< numbers in a patch or frame
  bool bias = false;       ///< bias of the patches' linear layer; convolutions always have one
  bool class_row = false;  ///< each sequence begins with one learned row
  std::int64_t table = 0;  ///< rows of the position table; 0: none
  bool frozen_table = false;
  bool spread_table = false;  ///< a picture's patches take bilinear mixtures of the table's rows (Qwen3-VL)
  /// This norm, with the layers' epsilon, precedes the first layer (CLIP).
  std::optional<NormKind> norm = std::nullopt;

  bool operator==(const EncoderFront&) const = default;
};

/// A ConnectorForm describes what a connector computes.
struct ConnectorForm {
  bool selects = false;   ///< rows are first selected or averaged, depending on the content of a sequence
  bool averages = false;  ///< merged rows are averaged; otherwise they are concatenated
  /// This norm comes before the first linear layer. Its input is the encoder's rows or, if rows are selected,
  /// the input of that layer.
  std::optional<NormKind> norm = NormKind::layer;
  double epsilon = 1e-5;
  Activation activation = Activation::gelu_tanh;

  bool operator==(const ConnectorForm&) const = default;
};

/// A ModelFamily is a class of models in transformers, named after the model_type of its config.json.
enum class ModelFamily : std::uint8_t {
  qwen2,
  qwen3,
  llama,
  llava,
  llava_next,
  llava_onevision,
  qwen2_vl,
  qwen2_5_vl,
  qwen3_vl,
  internvl,
  qwen2_audio,
  qwen2_5_omni  ///< its thinker, which sees and hears; the parts that speak are not trained
};

template <>
inline constexpr NameTable<ModelFamily, 12> kNames<ModelFamily> = {
    {{ModelFamily::qwen2, "qwen2"},
     {ModelFamily::qwen3, "qwen3"},
     {ModelFamily::llama, "llama"},
     {ModelFamily::llava, "llava"},
     {ModelFamily::llava_next, "llava_next"},
     {ModelFamily::llava_onevision, "llava_onevision"},
     {ModelFamily::qwen2_vl, "qwen2_vl"},
     {ModelFamily::qwen2_5_vl, "qwen2_5_vl"},
     {ModelFamily::qwen3_vl, "qwen3_vl"},
     {ModelFamily::internvl, "internvl"},
     {ModelFamily::qwen2_audio, "qwen2_audio"},
     {ModelFamily::qwen2_5_omni, "qwen2_5_omni_thinker"}}};

/// A PictureGeometry says how pictures are divided for an encoder.
struct PictureGeometry {
  int patch = 0;               ///< side, pixels
  int temporal_patch = 1;      ///< frames per temporal patch
  int tile = 0;                ///< side of a tile, pixels; 0: pictures are not tiled and keep their ratio
  int merge = 1;               ///< side of the square of patches that the connector merges
  int window = 0;              ///< side of an attention window, merged patches; 0: none
  double positions_per_s = 0;  ///< positions in time per second, in videos; 0: frames have none
  std::vector<std::pair<int, int>> pinpoints = {};  ///< height and width of the tile grids, pixels
  int most_tiles = 0;  ///< with pinpoints: larger pictures are shrunk to this many tiles' rows; 0: never

  bool operator==(const PictureGeometry&) const = default;
};

/// A SoundGeometry says how sounds are divided for an encoder, and placed among a video's frames.
struct SoundGeometry {
  /// Sounds are cut into parts of this many frames, each a sequence of its own. 0: they are not cut.
  std::int64_t part = 0;
  /// The tokens of a video and of its own sound alternate in chunks of this many positions in time. 0: videos
  /// have no sound.
  std::int64_t positions_per_chunk = 0;

  bool operator==(const SoundGeometry&) const = default;
};

/// An Architecture has the properties of a model's family other than the forms of its layers.
struct Architecture {
  ModelFamily family = ModelFamily::qwen2;
  EncoderFront front;
  ConnectorForm connector;
  PictureGeometry picture;
  SoundGeometry sound = {};
  /// These encoder layers, counted from 0, also feed the LLM: each has a connector of its own, and the
  /// results of the j-th are added to the rows of pictures after LLM layer j ("deepstack", Qwen3-VL).
  std::vector<int> deepstack = {};
  bool newline = false;  ///< a learned LLM row follows each row of a picture
  std::int64_t image_token = -1;
  std::int64_t video_token = -1;
  std::int64_t audio_token = -1;

  /// Returns whether a token stands for a row of a picture, a video or a sound.
  bool is_medium(std::int64_t id) const {
    return id == image_token || id == video_token || id == audio_token;
  }

  bool operator==(const Architecture&) const = default;
};

}  // namespace dflop
