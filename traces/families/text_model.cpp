#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "traces/families/config.hpp"
#include "traces/families/hugging_face.hpp"

namespace dflop {
namespace {

/// A TextKind holds the defaults of a class of text models in transformers.
struct TextKind {
  std::string_view model_type;
  std::string_view name;
  int hidden;
  int ffn;
  int layers;
  int heads;
  int kv_heads;  ///< 0: as many as heads
  int head_dim;  ///< 0: the width divided by the heads
  int vocabulary;
  double epsilon;
  double rotary_base;  ///< 0: required, because its default differs between versions
};

constexpr TextKind kTextKinds[] = {
    {"llama", "llama", 4096, 11008, 32, 32, 0, 0, 32000, 1e-6, 1e4},
    {"mistral", "mistral", 4096, 14336, 32, 32, 8, 0, 32000, 1e-6, 1e4},
    {"qwen2", "qwen2", 4096, 22016, 32, 32, 0, 0, 151936, 1e-6, 1e4},
    {"qwen2_vl", "qwen2", 8192, 29568, 80, 64, 8, 0, 152064, 1e-5, 1e6},
    {"qwen2_5_vl", "qwen2", 8192, 29568, 80, 64, 8, 0, 152064, 1e-5, 1e6},
    {"qwen2_5_omni", "qwen2", 3584, 18944, 28, 28, 4, 0, 152064, 1e-6, 1e6},
    {"qwen3", "qwen3", 4096, 22016, 32, 32, 32, 128, 151936, 1e-6, 1e4},
    {"qwen3_vl", "qwen3", 4096, 22016, 32, 32, 32, 128, 151936, 1e-6, 0},
};

/// Returns the row of a class. A multimodal model's text class is named like the model, with "_text".
const TextKind* find_kind(std::string_view model_type) {
  constexpr std::string_view kText = "_text";
  if (model_type.ends_with(kText)) model_type.remove_suffix(kText.size());
  for (const TextKind& kind : kTextKinds) {
    if (kind.model_type == model_type) return &kind;
  }
  return nullptr;
}

/// A RotaryConfig gives access to the keys of rotary positions, in the forms of transformers 4 and 5.
struct RotaryConfig {
  const Config& text;
  Config rope;
  std::string_view kind_key;
  int head_dim;
  double base;

  double number(std::string_view key, double absent) const {
    return rope.has(key) ? rope.number(key, absent) : absent;  // null is as missing in modeling_rope_utils.py
  }
  double required(std::string_view key) const {
    if (!rope.has(key)) rope.at(key);  // throws that it is missing
    return rope.number(key, 0);
  }
  /// Returns the number of positions before the model was extended.
  double original_positions() const {
    constexpr std::string_view kKey = "original_max_position_embeddings";
    for (const Config& of : {rope, text}) {
      if (of.has(kKey)) return static_cast<double>(of.at(kKey).integer<std::int64_t>(1));
    }
    return max_positions();
  }
  double max_positions() const {
    return static_cast<double>(text.at("max_position_embeddings").integer<std::int64_t>(1));
  }
};

RopeScaling read_llama3(const RotaryConfig& config) {
  const RopeScaling scaling{config.required("factor"), config.required("low_freq_factor"),
                            config.required("high_freq_factor"),
                            config.rope.at("original_max_position_embeddings").integer<std::int64_t>(1)};
  if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
    config.rope.at("high_freq_factor").refuse_type("more than low_freq_factor");
  }
  return scaling;
}

/// Returns the factor of cosines and sines that keeps the size of attention's scores when positions are
/// stretched (Peng et al. 2023, "YaRN").
double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

/// Pairs that rotate often within the original positions keep their frequency, slow ones are stretched by the
/// factor, and pairs in between partly (transformers modeling_rope_utils.py, "yarn").
void read_yarn(const RotaryConfig& config, Rotary& rotary) {
  const double factor = config.required("factor");
  const double original = config.original_positions();
  const auto pair_with = [&](double rotations) {
    return config.head_dim * std::log(original / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(config.base));
  };
  double first = pair_with(config.number("beta_fast", 32));
  double last = pair_with(config.number("beta_slow", 1));
  if (config.rope.flag("truncate", true)) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, config.head_dim - 1.0);
  if (first == last) last += 0.001;
  for (int pair = 0; pair < config.head_dim / 2; ++pair) {
    const double stretched = std::clamp((pair - first) / (last - first), 0.0, 1.0);
    rotary.factors.push_back(stretched / factor + (1 - stretched));
  }
  const bool has_scales = config.rope.has("mscale") && config.rope.has("mscale_all_dim");
  const double usual = has_scales ? yarn_magnitude(factor, config.number("mscale", 1)) /
                                        yarn_magnitude(factor, config.number("mscale_all_dim", 1))
                                  : yarn_magnitude(factor, 1);
  rotary.magnitude = config.number("attention_factor", usual);
}

/// Reads the factors of sequences within the original positions ("longrope", Ding et al. 2024).
void read_longrope(const RotaryConfig& config, Rotary& rotary) {
  const JsonValue factors = config.rope.at("short_factor");
  for (const double divisor : factors.numbers(static_cast<std::size_t>(config.head_dim / 2), 1e-6, 1e6))
    rotary.factors.push_back(1 / divisor);
  const double original = config.original_positions();
  const double factor = config.max_positions() / original;
  const double usual = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  rotary.magnitude = config.number("attention_factor", usual);
}

/// Reads the kind of scaling. "dynamic" only scales sequences longer than max_position_embeddings.
void read_scaling(const RotaryConfig& config, Rotary& rotary) {
  const std::string kind = config.rope.text(config.kind_key, "default");
  if (kind == "llama3") {
    rotary.scaling = read_llama3(config);
  } else if (kind == "linear") {
    rotary.factors.assign(static_cast<std::size_t>(config.head_dim / 2), 1 / config.required("factor"));
  } else if (kind == "yarn") {
    read_yarn(config, rotary);
  } else if (kind == "longrope") {
    read_longrope(config, rotary);
  } else if (kind != "default" && kind != "mrope" && kind != "dynamic") {
    config.rope.at(config.kind_key)
        .refuse_type(
            "\"default\", \"dynamic\", \"linear\", \"llama3\", \"longrope\", \"mrope\" or \"yarn\", because no other "
            "scaling is supported");
  }
}

std::string_view rope_key(const Config& config) {
  return config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
}

/// Reads rotary positions: "rope_parameters" of transformers 5, or the older "rope_theta" and "rope_scaling".
Rotary read_rotary(const Config& config, double absent_base, int head_dim) {
  Rotary rotary;
  const std::string_view key = rope_key(config);
  if (config.has("rope_parameters") && config.has("rope_scaling") &&
      config.at("rope_parameters").text() != config.at("rope_scaling").text()) {
    config.at("rope_scaling").refuse("expected this key or 'rope_parameters', found both, and they differ");
  }
  const bool has_base = config.has("rope_theta") || (config.has(key) && config.object(key).has("rope_theta"));
  if (!has_base && absent_base == 0) config.at("rope_theta");  // throws that it is missing
  if (config.has("rope_theta") || !has_base) rotary.base = config.number("rope_theta", absent_base);
  if (!config.has(key)) return rotary;
  const Config rope = config.object(key);
  if (rope.has("rope_theta")) rotary.base = rope.number("rope_theta", rotary.base);
  rope.require_number("partial_rotary_factor", 1);
  read_scaling({config, rope, rope.has("rope_type") ? "rope_type" : "type", head_dim, rotary.base}, rotary);
  if (rope.has("mrope_section")) {
    for (const std::int64_t pairs : rope.at("mrope_section").integers(1, kMaxConfigHeadDim)) {
      rotary.sections.push_back(static_cast<int>(pairs));
    }
  }
  rotary.sections_interleave = rope.flag("mrope_interleaved", false);
  return rotary;
}

/// Rejects sections that do not cover a head, or interleaved ones that reach beyond it.
void check_sections(const Config& config, const Rotary& rotary, int head_dim) {
  if (rotary.sections.empty()) return;
  std::int64_t pairs = 0;
  for (const int section : rotary.sections) pairs += section;
  if (2 * pairs != head_dim || rotary.sections.size() != 3) {
    config.at(rope_key(config))
        .refuse_type("an \"mrope_section\" of three parts that add up to {} pairs", head_dim / 2);
  }
  if (rotary.sections_interleave &&
      3 * std::int64_t{std::max(rotary.sections[1], rotary.sections[2])} > pairs) {
    config.at(rope_key(config)).refuse_type("an \"mrope_section\" whose last two parts are at most a third");
  }
}

/// Rejects layers that attend only within windows.
void require_whole_attention(const Config& config, const TextKind& kind) {
  config.require_flag("use_sliding_window", false);
  if (kind.model_type == "mistral" && config.at("sliding_window").text() != "null") {
    config.at("sliding_window").refuse_type("null, because windows are not supported");
  }
  if (!config.has("layer_types")) return;
  for (const JsonValue& type : config.at("layer_types").elements()) {
    if (type.string() != "full_attention")
      type.refuse_type("\"full_attention\", because windows are not supported");
  }
}

/// Reads norms, biases and positions of the layers.
LayerForm read_form(const Config& config, const TextKind& kind, int head_dim) {
  LayerForm form = preset_form(true);
  form.epsilon = config.number("rms_norm_eps", kind.epsilon);
  const bool has_choice = kind.name == "llama" || kind.name == "qwen3";
  form.output_bias = has_choice && config.flag("attention_bias", false);
  form.qkv_bias = form.key_bias = kind.name == "qwen2" || form.output_bias;
  form.mlp_bias = kind.name == "llama" && config.flag("mlp_bias", false);
  if (kind.name == "qwen3") {
    form.qk_norm = QkNormKind::each_head;
    form.qk_epsilon = form.epsilon;
  }
  form.rotary = read_rotary(config, kind.rotary_base, head_dim);
  check_sections(config, *form.rotary, head_dim);
  return form;
}

}  // namespace

TransformerSpec read_text(const Config& config, std::string_view model_type) {
  const TextKind* found = find_kind(model_type);
  if (found == nullptr) {
    config.at("model_type")
        .refuse_type("\"llama\", \"mistral\", \"qwen2\" or \"qwen3\"{}",
                     model_type.find("moe") != std::string_view::npos
                         ? ", because LLMs with experts are not supported"
                         : "");
  }
  const TextKind& kind = *found;
  config.require("hidden_act", "silu");
  require_whole_attention(config, kind);
  if (kind.name != "llama") config.require_flag("mlp_bias", false);
  config.require_no_dropout();
  config.require_number("partial_rotary_factor", 1);
  TransformerSpec spec;
  spec.name = kind.name;
  spec.layers = config.size("num_hidden_layers", kind.layers, kMaxConfigLayers);
  spec.hidden = config.size("hidden_size", kind.hidden, kMaxConfigWidth);
  spec.ffn = config.size("intermediate_size", kind.ffn, kMaxConfigWidth);
  spec.heads = config.size("num_attention_heads", kind.heads, kMaxConfigHeads);
  spec.kv_heads = config.size_or_null("num_key_value_heads", kind.kv_heads > 0 ? kind.kv_heads : spec.heads,
                                      spec.heads, kMaxConfigHeads);
  spec.vocabulary = config.size("vocab_size", kind.vocabulary);
  if (spec.heads % spec.kv_heads != 0) {
    config.at("num_key_value_heads").refuse_type("a divisor of the {} heads", spec.heads);
  }
  const bool divides = !config.has("head_dim") && kind.head_dim == 0;
  if (divides && spec.hidden % spec.heads != 0) {
    config.at("num_attention_heads").refuse_type("a divisor of the width {}", spec.hidden);
  }
  if (divides && spec.hidden / spec.heads > kMaxConfigHeadDim) {
    config.at("num_attention_heads").refuse_type("heads of a width of at most {}", kMaxConfigHeadDim);
  }
  spec.head_dim = kind.head_dim > 0 ? config.size("head_dim", kind.head_dim, kMaxConfigHeadDim)
                                    : config.size_or_null("head_dim", spec.hidden / spec.heads,
                                                          spec.hidden / spec.heads, kMaxConfigHeadDim);
  spec.gated_mlp = spec.causal = true;
  spec.logits_at_once = kLogitsAtOnce;
  spec.form = read_form(config, kind, spec.head_dim);
  return spec;
}

TransformerSpec read_inner_text(const Config& root, std::string_view absent) {
  if (!root.has("text_config")) {
    const bool is_inside = root.has("hidden_size") || root.has("num_hidden_layers");  // as in older files
    return read_text(is_inside ? root : root.object("text_config"), absent);          // which is missing
  }
  const Config config = root.object("text_config");
  return read_text(config, config.text("model_type", std::string(absent)));
}

ModelSpec read_text_model(const Config& root, ModelFamily family) {
  ModelSpec model;
  model.preprocess = "text";
  model.llm = read_text(root, to_string(family));
  model.architecture.emplace();
  model.architecture->family = family;
  return model;
}

}  // namespace dflop
