#include "backend/content/stored_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {
namespace {

using Has = std::function<bool(const std::string&)>;

/// Returns the only prefix with which the folder has the tensor; without `has`, the first one.
std::string find_prefix(const Has& has, const std::string& tensor, const std::vector<std::string>& prefixes) {
  if (!has) return prefixes.front();
  std::optional<std::string> found;
  for (const std::string& prefix : prefixes) {
    if (!has(prefix + tensor)) continue;
    if (found) {
      refuse_input(
          "",
          "expected one tensor of '{0}{2}' and '{1}{2}', found both: remove the weights that are not meant",
          *found, prefix, tensor);
    }
    found = prefix;
  }
  if (found) return *found;
  std::vector<std::string> names;
  for (const std::string& prefix : prefixes) names.push_back("'" + prefix + tensor + "'");
  refuse_input("", "expected a tensor named {}, found none", fmt::join(names, " or "));
}

[[noreturn]] void fail_without_name(const std::string& tensor) {
  throw Error(ErrorKind::internal, "tensor '" + tensor + "' has no name in transformers");
}

/// Splits a tensor's name here, which may end in ".bias", into the rest and ".weight" or ".bias".
std::pair<std::string, std::string> split_kind(const std::string& rest) {
  constexpr std::string_view kBias = ".bias";
  if (rest.ends_with(kBias)) return {rest.substr(0, rest.size() - kBias.size()), ".bias"};
  constexpr std::string_view kGamma = ".gamma";
  if (rest.ends_with(kGamma)) return {rest.substr(0, rest.size() - kGamma.size()), ".weight"};
  constexpr std::string_view kBeta = ".beta";
  if (rest.ends_with(kBeta)) return {rest.substr(0, rest.size() - kBeta.size()), ".bias"};
  return {rest, ".weight"};
}

/// Returns a whole tensor as one part: a matrix, or a vector if it has one row or column.
std::vector<StoredPart> whole(std::string name, std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> shape{rows, columns};
  if (rows == 1) shape = {columns};
  if (columns == 1) shape = {rows};
  return {{std::move(name), rows, std::move(shape)}};
}

/// Returns the name of a part of Qwen3-VL's mergers, for "encoder.norm.gamma", "connector.1.bias" or
/// "connector.deep.0.norm.gamma".
std::string qwen3_merger(const std::string& tensor) {
  constexpr std::string_view kDeep = "connector.deep.";
  std::string part = split_kind(tensor).first;
  std::string merger = "merger.";
  if (part.starts_with(kDeep)) {
    part = part.substr(kDeep.size());
    const std::size_t dot = part.find('.');
    merger = "deepstack_merger_list." + part.substr(0, dot + 1);
    part = part.substr(dot);
  }
  return merger + (part.ends_with(".norm") ? "norm" : part.ends_with(".0") ? "linear_fc1" : "linear_fc2");
}

/// LayerNames are the stored names of a layer's parts.
struct LayerNames {
  std::string layers;  ///< "encoder.layers."
  std::string norm1;
  std::vector<std::string> qkv;  ///< three names, or one for all three
  std::string out;
  std::string norm2;
  std::vector<std::string> up;  ///< gate and up, or one for both
  std::string down;
};

/// With `remote`, returns the names of OpenGVLab's own code.
LayerNames layer_names(ModelFamily family, bool remote = false) {
  switch (family) {
    case ModelFamily::llava:
    case ModelFamily::llava_next:
    case ModelFamily::llava_onevision:
      return {"encoder.layers.",
              "layer_norm1",
              {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
              "self_attn.out_proj",
              "layer_norm2",
              {"mlp.fc1"},
              "mlp.fc2"};
    case ModelFamily::qwen2_vl:
      return {"blocks.", "norm1", {"attn.qkv"}, "attn.proj", "norm2", {"mlp.fc1"}, "mlp.fc2"};
    case ModelFamily::qwen3_vl:
      return {"blocks.", "norm1", {"attn.qkv"}, "attn.proj", "norm2", {"mlp.linear_fc1"}, "mlp.linear_fc2"};
    case ModelFamily::qwen2_5_vl:
      return {"blocks.",      "norm1", {"attn.qkv"}, "attn.proj", "norm2", {"mlp.gate_proj", "mlp.up_proj"},
              "mlp.down_proj"};
    case ModelFamily::qwen2_5_omni:
      return {"blocks.",      "norm1", {"attn.q", "attn.k", "attn.v"},
              "attn.proj",    "norm2", {"mlp.gate_proj", "mlp.up_proj"},
              "mlp.down_proj"};
    case ModelFamily::internvl:
      if (remote) {
        return {"encoder.layers.", "norm1", {"attn.qkv"}, "attn.proj", "norm2", {"mlp.fc1"}, "mlp.fc2"};
      }
      return {"encoder.layer.",
              "layernorm_before",
              {"attention.q_proj", "attention.k_proj", "attention.v_proj"},
              "attention.projection_layer",
              "layernorm_after",
              {"mlp.fc1"},
              "mlp.fc2"};
    case ModelFamily::qwen2_audio:
      return {"layers.",
              "self_attn_layer_norm",
              {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
              "self_attn.out_proj",
              "final_layer_norm",
              {"fc1"},
              "fc2"};
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::llama:
      break;
  }
  return {"layers.",
          "input_layernorm",
          {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          "self_attn.o_proj",
          "post_attention_layernorm",
          {"mlp.gate_proj", "mlp.up_proj"},
          "mlp.down_proj"};
}

constexpr const char* kRemoteClass = "embeddings.class_embedding";
constexpr const char* kTransformersClass = "vision_tower.embeddings.cls_token";

/// Prefixes lists the known prefixes of the modules, in the order of preference: first those that
/// transformers writes.
struct Prefixes {
  std::vector<std::string> llm;
  std::vector<std::string> head;
  std::vector<std::string> encoder;
  std::vector<std::string> connector;
  std::vector<std::string> newline;
  std::string encoder_probe;
  std::string connector_probe;
  std::vector<std::string> second = {};  ///< of the second encoder
};

Prefixes prefixes_of(ModelFamily family, bool remote) {
  const std::vector<std::string> outer_llm{"language_model.model.", "model.language_model.", "model."};
  const std::vector<std::string> head{"language_model.", "", "model."};
  const std::vector<std::string> projector{"", "model."};
  switch (family) {
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::llama:
      return {{"model.", ""}, {""}, {}, {}, {}, "", ""};
    case ModelFamily::llava:
    case ModelFamily::llava_next:
    case ModelFamily::llava_onevision:
      return {outer_llm,
              head,
              {"vision_tower.", "vision_tower.vision_model.", "model.vision_tower.",
               "model.vision_tower.vision_model."},
              projector,
              {"", "model."},
              "embeddings.patch_embedding.weight",
              "multi_modal_projector.linear_1.weight"};
    case ModelFamily::qwen3_vl:
      return {{"model.language_model.", "language_model.model.", "model."},
              {"", "language_model.", "model."},
              {"model.visual.", "visual."},
              {"model.visual.", "visual."},
              {},
              "patch_embed.proj.weight",
              "merger.linear_fc1.weight"};
    case ModelFamily::qwen2_vl:
    case ModelFamily::qwen2_5_vl:
      return {{"model.", "model.language_model.", "language_model.model."},
              {"", "language_model.", "model."},
              {"visual.", "model.visual."},
              {"visual.", "model.visual."},
              {},
              "patch_embed.proj.weight",
              "merger.mlp.0.weight"};
    case ModelFamily::qwen2_5_omni:
      return {{"model.", "thinker.model."},
              {"", "thinker."},
              {"visual.", "thinker.visual."},
              {"visual.", "thinker.visual."},
              {},
              "patch_embed.proj.weight",
              "merger.mlp.0.weight",
              {"audio_tower.", "thinker.audio_tower."}};
    case ModelFamily::internvl:
      if (remote) return {outer_llm, head, {"vision_model."}, {""}, {}, kRemoteClass, "mlp1.1.weight"};
      return {outer_llm,
              head,
              {"vision_tower.", "model.vision_tower."},
              projector,
              {},
              "embeddings.cls_token",
              "multi_modal_projector.linear_1.weight"};
    case ModelFamily::qwen2_audio:
      return {outer_llm, head,           {"audio_tower.", "model.audio_tower."}, projector,
              {},        "conv1.weight", "multi_modal_projector.linear.weight"};
  }
  return {};
}

}  // namespace

StoredNames::StoredNames(const ModelSpec& model, const Has& has)
    : StoredNames(model, has,
                  model.architecture->family == ModelFamily::internvl && !has(kTransformersClass) &&
                      has("vision_model." + std::string(kRemoteClass))) {}

StoredNames::StoredNames(const ModelSpec& model, bool of_opengvlab)
    : StoredNames(model, nullptr, of_opengvlab && model.architecture->family == ModelFamily::internvl) {}

StoredNames::StoredNames(const ModelSpec& model, const Has& has, bool remote)
    : model_(model), remote_(remote) {
  const Prefixes prefixes = prefixes_of(model.architecture->family, remote_);
  llm_ = find_prefix(has, "embed_tokens.weight", prefixes.llm);
  head_ =
      model.llm.tied_embeddings ? "" : find_prefix(has, "lm_head.weight", prefixes.head) + "lm_head.weight";
  if (model.encoder.layers == 0) return;
  encoder_ = find_prefix(has, prefixes.encoder_probe, prefixes.encoder);
  connector_ = find_prefix(has, prefixes.connector_probe, prefixes.connector);
  if (model.architecture->newline) {
    newline_ = find_prefix(has, "image_newline", prefixes.newline) + "image_newline";
  }
  if (model.second) {
    ModelSpec hears = model.of_second();
    hears.architecture->family = ModelFamily::qwen2_audio;
    const EncoderPrefix prefix{find_prefix(has, "conv1.weight", prefixes.second)};
    second_ = std::make_shared<const StoredNames>(StoredNames(std::move(hears), prefix));
  }
}

std::vector<StoredPart> StoredNames::parts(const std::string& tensor, std::int64_t rows,
                                           std::int64_t columns) const {
  const std::size_t dot = tensor.find('.');
  const std::string module = tensor.substr(0, dot);
  const std::string rest = tensor.substr(dot + 1);
  if (module == "llm") return llm(rest, rows, columns);
  if (module == "second" && second_) return second_->second(rest, rows, columns);
  if (module == "connector" || rest.starts_with("norm.")) return connector(tensor, rows, columns);
  if (module == "encoder") return encoder(rest, rows, columns);
  fail_without_name(tensor);
}

/// Returns the parts of Qwen2.5-Omni's sound encoder. Its position table is computed and in no file.
std::vector<StoredPart> StoredNames::second(const std::string& rest, std::int64_t rows,
                                            std::int64_t columns) const {
  const auto [part, kind] = split_kind(rest);
  if (part == "norm") return whole(encoder_ + "ln_post" + kind, rows, columns);
  if (part == "connector.0") return whole(encoder_ + "proj" + kind, rows, columns);
  std::vector<StoredPart> all = encoder(rest, rows, columns);
  all.front().absent = all.front().absent || part == "positions";
  return all;
}

/// Returns queries, keys and values, which are stored separately or as one tensor.
std::vector<StoredPart> StoredNames::qkv(const TransformerSpec& spec, const std::string& base,
                                         const std::vector<std::string>& names, const std::string& kind,
                                         std::int64_t columns) const {
  const std::int64_t queries = std::int64_t{spec.heads} * spec.head_dim;
  const std::int64_t keys = std::int64_t{spec.kv_heads} * spec.head_dim;
  if (names.size() == 1) return whole(base + names.front() + kind, queries + 2 * keys, columns);
  std::vector<StoredPart> all;
  for (std::size_t i = 0; i < 3; ++i) {
    all.push_back(whole(base + names[i] + kind, i == 0 ? queries : keys, columns).front());
  }
  all[1].absent = kind == ".bias" && !spec.layer_form().key_bias;
  return all;
}

std::vector<StoredPart> StoredNames::llm(const std::string& rest, std::int64_t rows,
                                         std::int64_t columns) const {
  if (rest == "embedding") return whole(llm_ + "embed_tokens.weight", rows, columns);
  if (rest == "newline") return whole(newline_, rows, columns);
  if (rest == "head") return whole(head_, rows, columns);
  if (rest == "norm.gamma") return whole(llm_ + "norm.weight", rows, columns);
  const std::size_t dot = rest.find('.', 7);
  if (!rest.starts_with("layers.") || dot == std::string::npos) fail_without_name("llm." + rest);
  const LayerNames names = layer_names(ModelFamily::qwen2);
  const std::string base = llm_ + names.layers + rest.substr(7, dot - 7) + '.';
  const auto [part, kind] = split_kind(rest.substr(dot + 1));
  if (part == "qkv") return qkv(model_.llm, base, names.qkv, kind, columns);
  if (part == "norm1") return whole(base + names.norm1 + kind, rows, columns);
  if (part == "norm2") return whole(base + names.norm2 + kind, rows, columns);
  if (part == "q_norm" || part == "k_norm") return whole(base + "self_attn." + part + kind, rows, columns);
  if (part == "attention_out") return whole(base + names.out + kind, rows, columns);
  if (part == "down") return whole(base + names.down + kind, rows, columns);
  if (part != "up") fail_without_name("llm." + rest);
  return {whole(base + names.up[0] + kind, rows / 2, columns).front(),
          whole(base + names.up[1] + kind, rows / 2, columns).front()};
}

std::vector<StoredPart> StoredNames::encoder(const std::string& rest, std::int64_t rows,
                                             std::int64_t columns) const {
  const ModelFamily family = model_.architecture->family;
  const PictureGeometry& picture = model_.architecture->picture;
  const bool internvl = family == ModelFamily::internvl;
  const bool qwen = family == ModelFamily::qwen2_vl || family == ModelFamily::qwen2_5_vl ||
                    family == ModelFamily::qwen3_vl || family == ModelFamily::qwen2_5_omni;
  if (rest.starts_with("layers.")) {
    const std::size_t dot = rest.find('.', 7);
    return encoder_layer(rest.substr(7, dot - 7), rest.substr(dot + 1), rows, columns);
  }
  const auto [part, kind] = split_kind(rest);
  if (part == "patches") {
    const std::string name = qwen                   ? "patch_embed.proj"
                             : internvl && !remote_ ? "embeddings.patch_embeddings.projection"
                                                    : "embeddings.patch_embedding";
    std::vector<StoredPart> all = whole(encoder_ + name + kind, rows, columns);
    if (kind == ".bias") return all;
    const std::int64_t frames = qwen ? picture.temporal_patch : 1;
    const std::int64_t area = std::int64_t{picture.patch} * picture.patch;
    all.front().shape = {rows, columns / (frames * area)};
    if (qwen) all.front().shape.push_back(frames);
    all.front().shape.insert(all.front().shape.end(), {picture.patch, picture.patch});
    return all;
  }
  if (part == "class") {
    std::vector<StoredPart> all =
        whole(encoder_ + (remote_ || !internvl ? kRemoteClass : "embeddings.cls_token"), rows, columns);
    if (internvl) all.front().shape = {1, 1, columns};
    return all;
  }
  if (part == "positions") {
    const std::string name = family == ModelFamily::qwen2_audio ? "embed_positions.weight"
                             : qwen                             ? "pos_embed.weight"
                             : remote_                          ? "embeddings.position_embedding"
                             : internvl                         ? "embeddings.position_embeddings"
                                                                : "embeddings.position_embedding.weight";
    std::vector<StoredPart> all = whole(encoder_ + name, rows, columns);
    if (internvl) all.front().shape = {1, rows, columns};
    return all;
  }
  if (part == "front_norm") return whole(encoder_ + "pre_layrnorm" + kind, rows, columns);  // so spelled
  if (part != "conv1" && part != "conv2") fail_without_name("encoder." + rest);
  std::vector<StoredPart> all = whole(encoder_ + part + kind, rows, columns);
  if (kind == ".weight") {
    all.front().taps = 3;
    all.front().shape = {rows, columns / 3, 3};
  }
  return all;
}

std::vector<StoredPart> StoredNames::encoder_layer(const std::string& layer, const std::string& rest,
                                                   std::int64_t rows, std::int64_t columns) const {
  const LayerNames names = layer_names(model_.architecture->family, remote_);
  const std::string base = encoder_ + names.layers + layer + '.';
  const auto [part, kind] = split_kind(rest);
  if (part == "qkv") return qkv(model_.encoder, base, names.qkv, kind, columns);
  if (part == "norm1") return whole(base + names.norm1 + kind, rows, columns);
  if (part == "norm2") return whole(base + names.norm2 + kind, rows, columns);
  if (part == "attention_out") return whole(base + names.out + kind, rows, columns);
  if (part == "down") return whole(base + names.down + kind, rows, columns);
  if (part == "scale1") return whole(base + (remote_ ? "ls1" : "lambda_1"), rows, columns);
  if (part == "scale2") return whole(base + (remote_ ? "ls2" : "lambda_2"), rows, columns);
  if (part == "q_norm" || part == "k_norm") {
    return whole(base + (remote_ ? "attn." : "attention.") + part + kind, rows, columns);
  }
  if (part != "up") fail_without_name("encoder.layers." + layer + '.' + rest);
  const auto many = static_cast<std::int64_t>(names.up.size());
  std::vector<StoredPart> all;
  for (const std::string& name : names.up)
    all.push_back(whole(base + name + kind, rows / many, columns).front());
  return all;
}

/// Returns the parts of the connector and of the norm before it, which is called "encoder.norm" here.
std::vector<StoredPart> StoredNames::connector(const std::string& tensor, std::int64_t rows,
                                               std::int64_t columns) const {
  const auto [part, kind] = split_kind(tensor);
  const bool norm = part == "encoder.norm";
  const bool second = part == "connector.1";
  switch (model_.architecture->family) {
    case ModelFamily::qwen3_vl:
      return whole(connector_ + qwen3_merger(tensor) + kind, rows, columns);
    case ModelFamily::qwen2_vl:
    case ModelFamily::qwen2_5_vl:
    case ModelFamily::qwen2_5_omni:
      return whole(connector_ +
                       (norm     ? "merger.ln_q"
                        : second ? "merger.mlp.2"
                                 : "merger.mlp.0") +
                       kind,
                   rows, columns);
    case ModelFamily::qwen2_audio:
      return whole(norm ? encoder_ + "layer_norm" + kind : connector_ + "multi_modal_projector.linear" + kind,
                   rows, columns);
    case ModelFamily::llava:
    case ModelFamily::llava_next:
    case ModelFamily::llava_onevision:
    case ModelFamily::internvl:
      if (remote_)
        return whole(connector_ + (norm ? "mlp1.0" : second ? "mlp1.3" : "mlp1.1") + kind, rows, columns);
      return whole(connector_ + "multi_modal_projector." +
                       (norm     ? "layer_norm"
                        : second ? "linear_2"
                                 : "linear_1") +
                       kind,
                   rows, columns);
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
    case ModelFamily::llama:
      break;
  }
  fail_without_name(tensor);
}

}  // namespace dflop
