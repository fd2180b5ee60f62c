// InternVL in OpenGVLab's published format, with its own tensor names and config keys, is read as the model
// that transformers converts it to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "backend/content/model_folder.hpp"
#include "tests/backend/content/golden_run.hpp"
#include "traces/checkpoints/pieces.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/weights/folder.hpp"
#include "traces/weights/writer.hpp"

namespace dflop {
namespace published_internvl_test {

using nlohmann::json;
using testing::GoldenModel;
using testing::GoldenRun;
using testing::GoldenTensor;
using testing::GoldenTensors;
namespace fs = std::filesystem;

/// Returns a golden model's config in OpenGVLab's format: InternVLChatConfig and InternVisionConfig with the
/// keys that their code reads.
json published_config(const json& golden) {
  const json& vision = golden["vision_config"];
  json llm = golden["text_config"];
  llm["architectures"] = {"Qwen2ForCausalLM"};
  llm["rope_theta"] = llm["rope_parameters"]["rope_theta"];
  llm.erase("rope_parameters");
  return {{"architectures", {"InternVLChatModel"}},
          {"model_type", "internvl_chat"},
          {"downsample_ratio", golden["downsample_ratio"]},
          {"dynamic_image_size", true},
          {"force_image_size", vision["image_size"][0]},
          {"llm_config", llm},
          {"max_dynamic_patch", 12},
          {"min_dynamic_patch", 1},
          {"ps_version", "v2"},
          {"select_layer", -1},
          {"template", "internvl2_5"},
          {"use_thumbnail", true},
          {"vision_config",
           {{"architectures", {"InternVisionModel"}},
            {"drop_path_rate", 0.0},
            {"dropout", 0.0},
            {"hidden_act", vision["hidden_act"]},
            {"hidden_size", vision["hidden_size"]},
            {"image_size", vision["image_size"][0]},
            {"intermediate_size", vision["intermediate_size"]},
            {"layer_norm_eps", vision["layer_norm_eps"]},
            {"model_type", "intern_vit_6b"},
            {"norm_type", vision["norm_type"]},
            {"num_attention_heads", vision["num_attention_heads"]},
            {"num_channels", 3},
            {"num_hidden_layers", vision["num_hidden_layers"]},
            {"patch_size", vision["patch_size"][0]},
            {"qk_normalization", vision["use_qk_norm"]},
            {"qkv_bias", vision["attention_bias"]},
            {"use_flash_attn", true}}}};
}

/// Returns OpenGVLab's name of a tensor, by the inverse of convert_internvl_weights_to_hf.py of transformers.
std::string published_name(const std::string& name) {
  const std::vector<std::pair<const char*, const char*>> renamed = {
      {"^vision_tower\\.", "vision_model."},
      {"^(vision_model\\.encoder\\.)layer\\.", "$1layers."},
      {"embeddings\\.cls_token", "embeddings.class_embedding"},
      {"embeddings\\.position_embeddings", "embeddings.position_embedding"},
      {"patch_embeddings\\.projection", "patch_embedding"},
      {"lambda_([12])", "ls$1"},
      {"attention\\.projection_layer", "attn.proj"},
      {"attention\\.([qk]_norm)", "attn.$1"},
      {"layernorm_before", "norm1"},
      {"layernorm_after", "norm2"},
      {"^multi_modal_projector\\.layer_norm", "mlp1.0"},
      {"^multi_modal_projector\\.linear_1", "mlp1.1"},
      {"^multi_modal_projector\\.linear_2", "mlp1.3"}};
  std::string published = name;
  for (const auto& [from, to] : renamed) published = std::regex_replace(published, std::regex(from), to);
  return published;
}

/// Returns a golden model's weights in OpenGVLab's layout, with one tensor for queries, keys and values of
/// the encoder.
GoldenTensors published_weights(const GoldenModel& model) {
  GoldenTensors published;
  for (const auto& [name, tensor] : model.weights) {
    static const std::regex kQueries("^(vision_tower\\..*)attention\\.q_proj(\\..*)$");
    static const std::regex kOthers("^vision_tower\\..*attention\\.[kv]_proj\\..*$");
    std::smatch parts;
    if (std::regex_match(name, kOthers)) continue;
    if (!std::regex_match(name, parts, kQueries)) {
      published[published_name(name)] = tensor;
      continue;
    }
    GoldenTensor all = tensor;
    all.shape[0] *= 3;
    for (const char* other : {"k", "v"}) {
      const auto& values = model.weights.at(parts[1].str() + "attention." + other + "_proj" + parts[2].str());
      all.values.insert(all.values.end(), values.values.begin(), values.values.end());
    }
    published[published_name(parts[1]) + "attn.qkv" + parts[2].str()] = all;
  }
  return published;
}

/// A PublishedFolder is removed by its destructor.
class PublishedFolder {
 public:
  explicit PublishedFolder(const GoldenModel& model) {
    std::string pattern = (fs::temp_directory_path() / "dflop-internvl-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    std::ifstream in(model.folder + "/config.json");
    std::ofstream(path_ + "/config.json") << published_config(json::parse(in));
    const GoldenTensors weights = published_weights(model);
    std::vector<TensorShape> shapes;
    for (const auto& [name, tensor] : weights) shapes.push_back({name, Dtype::f32, tensor.shape});
    SafetensorsWriter writer(path_ + "/model.safetensors", shapes);
    for (const auto& [name, tensor] : weights) writer.append(name, std::span<const double>(tensor.values));
    writer.finish();
  }
  ~PublishedFolder() { fs::remove_all(path_); }
  PublishedFolder(const PublishedFolder&) = delete;
  PublishedFolder& operator=(const PublishedFolder&) = delete;

  const std::string& path() const { return path_; }
  ModelSpec model(const std::string& name) const {
    std::ifstream in(path_ + "/config.json");
    return parse_hugging_face(std::string(std::istreambuf_iterator<char>(in), {}), name);
  }

 private:
  std::string path_;
};

TEST(PublishedInternVl, EqualsTheConvertedModel) {
  for (const std::string name : {"internvl-300m-style", "internvl-6b-style"}) {
    SCOPED_TRACE(name);
    GoldenModel golden = testing::read_golden_model(name);
    const Plan plan = testing::golden_ways(golden.spec).front().plan;
    GoldenRun converted(golden, plan, DType::f64);
    const PublishedFolder folder(golden);
    ModelSpec model = folder.model(name);
    EXPECT_EQ(model.architecture->image_token, -1);  // not in OpenGVLab's configs
    model.architecture->image_token = golden.spec.architecture->image_token;
    // Tied embeddings follow the config of the LLM.
    EXPECT_EQ(model, golden.spec);
    golden.spec = model;
    golden.folder = folder.path();
    GoldenRun published(golden, plan, DType::f64);
    const WholeTensors expected = converted.executor->read(ParameterStore::Kind::weight);
    for (const auto& [tensor, whole] : published.executor->read(ParameterStore::Kind::weight)) {
      EXPECT_EQ(whole.values, expected.at(tensor).values) << tensor;
    }
    StepOptions options;
    options.update = false;
    EXPECT_NEAR(published.executor->step(published.iteration, options).loss, golden.loss,
                1e-10 * golden.loss);
  }
}

/// OpenGVLab's InternRMSNorm of queries and keys uses layer_norm_eps, unlike transformers' norm.
TEST(PublishedInternVl, NormsOfQueriesUseTheCommonEpsilon) {
  std::ifstream in(testing::read_golden_model("internvl-6b-style").folder + "/config.json");
  json config = published_config(json::parse(in));
  config["vision_config"]["layer_norm_eps"] = 1e-4;
  const LayerForm form = *parse_hugging_face(config.dump(), "config.json").encoder.form;
  ASSERT_EQ(form.qk_norm, QkNormKind::all_heads);
  EXPECT_EQ(form.qk_epsilon, 1e-4);
}

/// OpenGVLab's model code reads only its own names.
TEST(PublishedInternVl, OfAFolderWithoutWeightsHasItsNames) {
  GoldenModel golden = testing::read_golden_model("internvl-300m-style");
  const PublishedFolder folder(golden);
  golden.spec = folder.model(folder.path());
  golden.folder = folder.path();
  GoldenRun run(golden, testing::golden_ways(golden.spec).front().plan, DType::f32);
  const fs::path parts = fs::path(folder.path()) / "parts";
  const fs::path bare = fs::path(folder.path()) / "bare";
  const fs::path found = fs::path(folder.path()) / "found";
  for (const fs::path& made : {parts, bare, found}) fs::create_directory(made);
  fs::copy_file(folder.path() + "/config.json", bare / "config.json");
  run.executor->save_weights(parts.string());
  write_model_folder(golden.spec, CheckpointReader(parts.string()), bare.string(), found.string());
  EXPECT_EQ(WeightsFolder(found.string()).names(), WeightsFolder(folder.path()).names());
}

std::string message_of(const json& config) {
  try {
    parse_hugging_face(config.dump(), "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PublishedInternVl, RejectsUnsupportedFeatures) {
  std::ifstream in(testing::read_golden_model("internvl-300m-style").folder + "/config.json");
  const json config = published_config(json::parse(in));
  EXPECT_EQ(message_of(config), "no error");
  json other = config;
  other["llm_config"]["model_type"] = "internlm2";
  EXPECT_NE(message_of(other).find("\"qwen2\" or \"qwen3\""), std::string::npos) << message_of(other);
  other = config;
  other["ps_version"] = "v1";
  EXPECT_NE(message_of(other).find("ps_version"), std::string::npos) << message_of(other);
  other = config;
  other["select_layer"] = -4;
  EXPECT_NE(message_of(other).find("select_layer"), std::string::npos) << message_of(other);
  other = config;
  other["force_image_size"] = 96;
  EXPECT_NE(message_of(other).find("force_image_size"), std::string::npos) << message_of(other);
}

}  // namespace published_internvl_test
}  // namespace dflop
