#include "traces/dataset/special_tokens.hpp"

#include <cstdint>
#include <optional>

#include "core/refuse.hpp"
#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// A SpecialToken is a token whose id a key of config.json repeats.
struct SpecialToken {
  std::string_view family;
  std::string_view key;
  std::string_view token;
};

constexpr SpecialToken kAroundMedia[] = {
    {"qwen2-vl", "vision_start_token_id", "<|vision_start|>"},
    {"qwen2-vl", "vision_end_token_id", "<|vision_end|>"},
    {"qwen2.5-vl", "vision_start_token_id", "<|vision_start|>"},
    {"qwen2.5-vl", "vision_end_token_id", "<|vision_end|>"},
    {"qwen2.5-omni", "vision_start_token_id", "<|vision_bos|>"},
    {"qwen2.5-omni", "vision_end_token_id", "<|vision_eos|>"},
    {"qwen2.5-omni", "audio_start_token_id", "<|audio_bos|>"},
    {"qwen2.5-omni", "audio_end_token_id", "<|audio_eos|>"},
};

/// Rejects another id than config.json's. If config.json has none, `expected` is negative.
void require_id(const Tokenizer& tokenizer, const SpecialToken& special, std::int64_t expected,
                const std::string& folder) {
  const std::optional<std::int32_t> id = tokenizer.id_of(special.token);
  if (id && *id == expected) return;
  if (expected < 0)
    refuse_input(folder, "config.json: expected key '{}', the id of token '{}', found none", special.key,
                 special.token);
  refuse_input(tokenizer.file(), "expected token '{}' with id {}, as config.json's '{}' says, found {}",
               special.token, expected, special.key, id ? std::to_string(*id) : "none");
}

}  // namespace

std::string_view media_family(const ModelSpec& model) {
  switch (model.architecture->family) {
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::llama:
      return "";
    case ModelFamily::llava:
    case ModelFamily::llava_next:
      return "llava";
    case ModelFamily::llava_onevision:
      return "llava-ov";
    case ModelFamily::qwen2_vl:
    case ModelFamily::qwen3_vl:
      return "qwen2-vl";
    case ModelFamily::qwen2_5_vl:
      return "qwen2.5-vl";
    case ModelFamily::internvl:
      return "internvl2.5";
    case ModelFamily::qwen2_audio:
      return "qwen2-audio";
    case ModelFamily::qwen2_5_omni:
      return "qwen2.5-omni";
  }
  return "";
}

void require_special_tokens(const ModelSpec& model, const Tokenizer& tokenizer, const std::string& folder) {
  if (tokenizer.vocabulary_size() > model.llm.vocabulary) {
    refuse_input(tokenizer.file(), "expected at most {} tokens, as config.json's 'vocab_size' says, found {}",
                 model.llm.vocabulary, tokenizer.vocabulary_size());
  }
  const std::string_view family = media_family(model);
  const Architecture& of = *model.architecture;
  const auto check = [&](const SpecialToken& special, std::int64_t expected) {
    if (special.family == family) require_id(tokenizer, special, expected, folder);
  };
  check({"llava-ov", "image_token_id", "<image>"}, of.image_token);
  check({"llava", "image_token_index", "<image>"}, of.image_token);
  check({"qwen2-vl", "image_token_id", "<|image_pad|>"}, of.image_token);
  check({"qwen2.5-vl", "image_token_id", "<|image_pad|>"}, of.image_token);
  check({"internvl2.5", "image_token_id", "<IMG_CONTEXT>"}, of.image_token);
  check({"qwen2-audio", "audio_token_id", "<|AUDIO|>"}, of.audio_token);
  check({"qwen2.5-omni", "image_token_index", "<|IMAGE|>"}, of.image_token);
  check({"qwen2.5-omni", "audio_token_index", "<|AUDIO|>"}, of.audio_token);
  if (family.empty()) return;
  const std::string file = folder + "/config.json";
  const JsonDocument config(read_text_file(file), file);
  const JsonValue root =
      config.root().has("thinker_config") ? config.root().at("thinker_config") : config.root();
  for (const SpecialToken& special : kAroundMedia) {
    const bool counts = special.family == family && root.has(special.key);
    if (!counts || root.at(special.key).text() == "null") continue;
    require_id(tokenizer, special, root.at(special.key).integer<std::int64_t>(0), folder);
  }
}

}  // namespace dflop
