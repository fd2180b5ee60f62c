// A Config gives typed access to a config.json. The functions below read the parts that several families
// share; each family's own source reads the rest.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/model.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

// Products of these sizes, and the parameters of all layers, fit into the integer types that count them.
inline constexpr int kMaxConfigSize = 1 << 24;  // for sizes without their own limit
inline constexpr int kMaxConfigLayers = 4096;
inline constexpr int kMaxConfigWidth = 1 << 20;
inline constexpr int kMaxConfigHeads = 1 << 14;
inline constexpr int kMaxConfigHeadDim = 1 << 12;
inline constexpr int kMaxPatchSide = 256;
inline constexpr int kMaxPatchDepth = 16;  // frames
inline constexpr int kMaxMerge = 16;       // side of a square of patches
inline constexpr int kMaxTileSide = 1 << 16;
// The longest sequence of a folder's model is at most this, as in the presets, although many configs allow
// 131,072 positions. A few very long samples would otherwise decide the memory and the balance of each step.
// --max-tokens allows more.
inline constexpr std::int64_t kConfigMaxTokens = 32768;

/// A ConfigUse records the keys of a config.json that were read, such as "text_config.hidden_size", and the
/// defaults that missing keys of sizes and other numbers got.
struct ConfigUse {
  std::set<std::string> read;
  std::map<std::string, std::string> defaults;
};

/// A Config is an object of a config.json; missing keys have defaults. Null counts as missing for objects,
/// words and flags, but transformers accepts it for few sizes and numbers.
class Config {
 public:
  /// `use` must outlive it. `path` is the object's place, such as "text_config.".
  Config(JsonValue json, ConfigUse& use, std::string path = "")
      : json_(std::move(json)), use_(&use), path_(std::move(path)) {
    json_.require_object();
  }

  bool has(std::string_view key) const { return json_.has(key) && at(key).text() != "null"; }
  JsonValue at(std::string_view key) const {
    use_->read.insert(path_ + std::string(key));
    return json_.at(key);
  }
  Config object(std::string_view key) const { return {at(key), *use_, path_ + std::string(key) + '.'}; }

  int size(std::string_view key, std::optional<int> absent = {}, int most = kMaxConfigSize) const {
    if (!json_.has(key) && absent) return defaulted(key, *absent);
    return at(key).integer(1, most);
  }
  /// Returns size(), or `null` for null, which the class allows for this key.
  int size_or_null(std::string_view key, int absent, int null, int most) const {
    return json_.has(key) && !has(key) ? defaulted(key, null) : size(key, absent, most);
  }
  double number(std::string_view key, double absent) const {
    return json_.has(key) ? at(key).number_in(1e-12, 1e12) : defaulted(key, absent);
  }
  bool flag(std::string_view key, bool absent) const { return has(key) ? at(key).boolean() : absent; }
  std::string text(std::string_view key, const std::string& absent) const {
    return has(key) ? at(key).string() : absent;
  }
  /// Returns the id of a token, which is below `vocabulary`, under the first of two keys; -1 without both.
  std::int64_t token(std::string_view key, std::string_view other_key, std::int64_t vocabulary) const {
    const std::string_view found = has(key) ? key : other_key;
    return has(found) ? at(found).integer<std::int64_t>(0, vocabulary - 1) : -1;
  }

  /// Rejects a present key with any other value.
  void require(std::string_view key, const std::string& expected) const {
    if (has(key) && at(key).string() != expected) at(key).refuse_type("\"{}\"", expected);
  }
  void require_flag(std::string_view key, bool expected) const {
    if (has(key) && at(key).boolean() != expected) {
      at(key).refuse_type("{}, because nothing else is supported", expected ? "true" : "false");
    }
  }
  void require_number(std::string_view key, double expected) const {
    if (has(key) && at(key).number() != expected)
      at(key).refuse_type("{}, because nothing else is supported", expected);
  }
  /// Rejects models that drop parts at random in training.
  void require_no_dropout() const;

 private:
  template <typename T>
  T defaulted(std::string_view key, const T& value) const {
    use_->defaults[path_ + std::string(key)] = fmt::format("{}", value);
    return value;
  }

  JsonValue json_;
  ConfigUse* use_;
  std::string path_;
};

/// Reads the name of a GELU. @throws Error (input) for any other activation
Activation read_gelu(const Config& config, std::string_view key, const std::string& absent);

/// Reads the LLM. `model_type` names its class in transformers, whose defaults missing keys get.
/// @throws Error (input) naming the key for another class, a missing required key or an unsupported value
TransformerSpec read_text(const Config& config, std::string_view model_type);
/// Reads the LLM in a multimodal model, under "text_config" or, in older files, at the root. `absent`: its
/// model_type if the config has none.
TransformerSpec read_inner_text(const Config& root, std::string_view absent);

/// Reads the sizes of an encoder, from the keys that its class uses.
TransformerSpec read_encoder(const Config& config, const std::string& name, std::string_view layers,
                             std::string_view hidden, std::string_view ffn, std::string_view heads);

/// Reads a key whose value may be a pair of equal sizes, as for pictures.
int read_side(const Config& config, std::string_view key, int most);
/// Rejects a side that is no multiple of the patches' side.
void require_patches(const Config& config, std::string_view key, int side, int patch);

// Each of these functions reads a family of models (ModelFamily).

ModelSpec read_text_model(const Config& root, ModelFamily family);
ModelSpec read_llava(const Config& root, ModelFamily family);
ModelSpec read_qwen_vl(const Config& root, ModelFamily family);
ModelSpec read_internvl(const Config& root);
ModelSpec read_qwen2_audio(const Config& root);
ModelSpec read_qwen2_5_omni(const Config& thinker);

/// Returns the sound encoder of Whisper's form in an audio_config, and its front.
std::pair<TransformerSpec, EncoderFront> read_sound_encoder(const Config& audio);
/// Returns the form of a connector that averages pairs of a sound encoder's rows.
ConnectorForm sound_connector();

}  // namespace dflop
