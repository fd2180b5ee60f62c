#include "traces/families/config.hpp"

#include <vector>

namespace dflop {

void Config::require_no_dropout() const {
  for (const std::string_view key : {"attention_dropout", "dropout", "activation_dropout",
                                     "hidden_dropout_prob", "projection_dropout", "encoder_layerdrop"}) {
    require_number(key, 0);
  }
}

Activation read_gelu(const Config& config, std::string_view key, const std::string& absent) {
  const std::string name = config.text(key, absent);
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "quick_gelu") return Activation::gelu_quick;
  config.at(key).refuse_type("\"gelu\", \"gelu_pytorch_tanh\" or \"quick_gelu\"");
}

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

int read_side(const Config& config, std::string_view key, int most) {
  if (!config.at(key).is_array()) return config.size(key, {}, most);
  const std::vector<std::int64_t> sides = config.at(key).integers(1, most);
  if (sides.size() != 2 || sides[0] != sides[1]) config.at(key).refuse_type("two equal sides");
  return static_cast<int>(sides[0]);
}

void require_patches(const Config& config, std::string_view key, int side, int patch) {
  if (side % patch != 0) config.at(key).refuse_type("a multiple of the patches' side {}", patch);
}

}  // namespace dflop
