// Reads config.json and preprocessor_config.json. Anything that is not modeled is rejected by name: the file,
// the key, the expected and the found value.
#include "traces/families/hugging_face.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/traces/file_fixtures.hpp"
#include "traces/media/model_processor.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace hugging_face_test {

using nlohmann::json;

constexpr const char* kFile = "model/config.json";

json config_of(const std::string& released) {
  return json::parse(read_text_file(DFLOP_SOURCE_DIR "/tests/golden/released/" + released + "/config.json"));
}

ModelSpec read(const json& config) {
  return parse_hugging_face(config.dump(), kFile);
}

/// A Refusal is a change to a config that must be rejected. `place` is a JSON pointer; `value` is JSON text,
/// empty to remove the key; `key` is the key that the error names.
struct Refusal {
  const char* model;
  const char* place;
  const char* value;
  const char* key;
  std::initializer_list<std::string_view> words;
};

const Refusal kRefusals[] = {
    // Architectures
    {"qwen2.5-7b", "/model_type", "\"mistral\"", "model_type", {"expected", "qwen2", "found \"mistral\""}},
    {"qwen2.5-7b", "/model_type", "\"qwen3_moe\"", "model_type", {"found \"qwen3_moe\""}},
    {"qwen2.5-7b", "/model_type", "", "model_type", {"expected this key, found none"}},
    {"llava-onevision-qwen2-7b-ov",
     "/text_config/model_type",
     "\"gemma\"",
     "text_config.model_type",
     {"\"llama\", \"mistral\", \"qwen2\" or \"qwen3\"", "found \"gemma\""}},
    {"llava-onevision-qwen2-7b-ov",
     "/vision_config/model_type",
     "\"clip_vision_model\"",
     "vision_config.model_type",
     {"\"siglip_vision_model\"", "found \"clip_vision_model\""}},
    // Forms of an LLM's layers
    {"qwen2.5-7b", "/hidden_act", "\"gelu\"", "hidden_act", {"\"silu\"", "found \"gelu\""}},
    {"qwen2.5-7b", "/use_sliding_window", "true", "use_sliding_window", {"expected false", "found true"}},
    {"qwen2.5-7b", "/mlp_bias", "true", "mlp_bias", {"expected false", "found true"}},
    {"qwen2.5-7b", "/attention_dropout", "0.1", "attention_dropout", {"expected 0", "found 0.1"}},
    {"qwen2.5-7b", "/partial_rotary_factor", "0.5", "partial_rotary_factor", {"expected 1", "found 0.5"}},
    {"qwen2.5-7b",
     "/layer_types",
     R"(["full_attention", "sliding_attention"])",
     "layer_types[1]",
     {"\"full_attention\"", "found \"sliding_attention\""}},
    {"qwen2.5-7b",
     "/quantization_config",
     R"({"quant_method": "awq"})",
     "quantization_config",
     {"expected none"}},
    {"qwen2-audio-7b",
     "/audio_config/encoder_layerdrop",
     "0.1",
     "audio_config.encoder_layerdrop",
     {"expected 0"}},
    {"internvl2.5-8b",
     "/vision_config/num_channels",
     "4",
     "vision_config.num_channels",
     {"expected 3", "found 4"}},
    {"qwen2.5-vl-7b",
     "/rope_parameters",
     R"({"rope_type": "default", "rope_theta": 5})",
     "rope_scaling",
     {"'rope_parameters', found both"}},
    {"qwen2.5-vl-7b",
     "/vision_config/rope_parameters",
     R"({"rope_type": "yarn", "rope_theta": 10000})",
     "vision_config.rope_parameters.rope_type",
     {"\"axial\" or \"default\"", "found \"yarn\""}},
    {"qwen2.5-vl-7b", "/vision_config/in_chans", "1", "vision_config.in_chans", {"expected 3", "found 1"}},
    {"llama-3.1-8b",
     "/rope_scaling/rope_type",
     "\"su\"",
     "rope_scaling.rope_type",
     {"\"llama3\"", "found \"su\""}},
    {"llama-3.1-8b",
     "/rope_scaling/high_freq_factor",
     "0.5",
     "rope_scaling.high_freq_factor",
     {"more than low_freq_factor", "found 0.5"}},
    {"llama-3.1-8b",
     "/rope_scaling/original_max_position_embeddings",
     "",
     "rope_scaling",
     {"original_max_position_embeddings", "found none"}},
    // Sizes of an LLM
    {"llama-3.1-8b", "/num_hidden_layers", "0", "num_hidden_layers", {"from 1 to 4096", "found 0"}},
    {"llama-3.1-8b", "/num_hidden_layers", "5000", "num_hidden_layers", {"4096", "found 5000"}},
    {"llama-3.1-8b", "/hidden_size", "-1", "hidden_size", {"found -1"}},
    {"llama-3.1-8b", "/hidden_size", "\"wide\"", "hidden_size", {"found \"wide\""}},
    {"llama-3.1-8b",
     "/num_key_value_heads",
     "5",
     "num_key_value_heads",
     {"a divisor of the 32 heads", "found 5"}},
    {"llama-3.1-8b",
     "/num_attention_heads",
     "24",
     "num_attention_heads",
     {"a divisor of the width 4096", "found 24"}},
    {"llama-3.1-8b", "/head_dim", "5000", "head_dim", {"4096", "found 5000"}},
    {"llama-3.1-8b", "/rms_norm_eps", "0", "rms_norm_eps", {"found 0"}},
    // LLaVA-OneVision
    {"llava-onevision-qwen2-7b-ov",
     "/vision_feature_layer",
     "-2",
     "vision_feature_layer",
     {"-1, the encoder's last layer", "found -2"}},
    {"llava-onevision-qwen2-7b-ov",
     "/vision_feature_select_strategy",
     "\"default\"",
     "vision_feature_select_strategy",
     {"\"full\"", "found \"default\""}},
    {"llava-onevision-qwen2-7b-ov",
     "/projector_hidden_act",
     "\"relu\"",
     "projector_hidden_act",
     {"\"gelu\"", "found \"relu\""}},
    {"llava-onevision-qwen2-7b-ov",
     "/vision_aspect_ratio",
     "\"square\"",
     "vision_aspect_ratio",
     {"\"anyres_max_\" and a number", "found \"square\""}},
    {"llava-onevision-qwen2-7b-ov",
     "/vision_config/patch_size",
     "512",
     "vision_config.patch_size",
     {"256", "found 512"}},
    {"llava-onevision-qwen2-7b-ov",
     "/image_grid_pinpoints",
     "[[384]]",
     "image_grid_pinpoints[0]",
     {"a height and a width"}},
    {"llava-onevision-qwen2-7b-ov",
     "/multimodal_projector_bias",
     "false",
     "multimodal_projector_bias",
     {"expected true", "found false"}},
    {"llava-onevision-qwen2-7b-ov", "/vision_config", "", "vision_config", {"expected this key, found none"}},
    // Qwen2.5-VL
    {"qwen2.5-vl-7b",
     "/vision_config/hidden_act",
     "\"quick_gelu\"",
     "vision_config.hidden_act",
     {"\"silu\"", "found \"quick_gelu\""}},
    {"qwen2.5-vl-7b",
     "/vision_config/fullatt_block_indexes",
     "[7, 32]",
     "vision_config.fullatt_block_indexes[1]",
     {"0 to 31", "found 32"}},
    {"qwen2.5-vl-7b",
     "/vision_config/window_size",
     "100",
     "vision_config.window_size",
     {"a multiple of the patches' side 28", "found 100"}},
    {"qwen2.5-vl-7b",
     "/vision_config/out_hidden_size",
     "2048",
     "vision_config.out_hidden_size",
     {"the LLM's width 3584", "found 2048"}},
    {"qwen2.5-vl-7b",
     "/vision_config/num_heads",
     "128",
     "vision_config.num_heads",
     {"a multiple of 4", "found 128"}},
    {"qwen2.5-vl-7b",
     "/rope_scaling/mrope_section",
     "[16, 24]",
     "rope_scaling",
     {"three parts that add up to 64 pairs"}},
    {"qwen2.5-vl-7b",
     "/rope_scaling/mrope_section",
     "[16, 24, 25]",
     "rope_scaling",
     {"three parts that add up to 64 pairs"}},
    {"qwen2.5-vl-7b", "/rope_scaling/mrope_section", "", "rope_scaling", {"mrope_section", "missing"}},
    // Null, which transformers' classes reject
    {"qwen2.5-omni-7b",
     "/thinker_config/audio_config/n_window",
     "null",
     "audio_config.n_window",
     {"a whole number", "found null"}},
    {"qwen2.5-omni-7b", "/thinker_config/seconds_per_chunk", "null", "seconds_per_chunk", {"found null"}},
    {"qwen2.5-7b", "/rms_norm_eps", "null", "rms_norm_eps", {"found null"}},
    // A part that is missing
    {"qwen2.5-omni-7b", "/thinker_config/text_config", "", "text_config", {"expected this key, found none"}},
    {"llava-1.5-7b", "/text_config", "", "text_config", {"expected this key, found none"}},
    // Tokens around media, below the vocabulary's 152,064
    {"qwen2.5-vl-7b",
     "/vision_start_token_id",
     "152064",
     "vision_start_token_id",
     {"a whole number from 0 to 152063", "found 152064"}},
    {"qwen2.5-vl-7b", "/vision_end_token_id", "\"151653\"", "vision_end_token_id", {"found \"151653\""}},
    {"qwen2.5-omni-7b",
     "/thinker_config/audio_start_token_id",
     "-1",
     "audio_start_token_id",
     {"a whole number from 0 to 152063", "found -1"}},
    {"qwen2.5-omni-7b",
     "/thinker_config/audio_end_token_id",
     "1.5",
     "audio_end_token_id",
     {"a whole number", "found 1.5"}},
    {"qwen2.5-omni-7b",
     "/thinker_config/audio_token_index",
     "152064",
     "audio_token_index",
     {"from 0 to 152063"}},
    // InternVL
    {"internvl2.5-8b",
     "/vision_config/norm_type",
     "\"batch_norm\"",
     "vision_config.norm_type",
     {"\"layer_norm\" or \"rms_norm\"", "found \"batch_norm\""}},
    {"internvl2.5-8b",
     "/vision_config/use_absolute_position_embeddings",
     "false",
     "vision_config.use_absolute_position_embeddings",
     {"expected true", "found false"}},
    {"internvl2.5-8b",
     "/vision_config/use_mask_token",
     "true",
     "vision_config.use_mask_token",
     {"expected false", "found true"}},
    {"internvl2.5-8b",
     "/vision_config/image_size",
     "[448, 336]",
     "vision_config.image_size",
     {"two equal sides"}},
    {"internvl2.5-8b",
     "/vision_config/image_size",
     "[450, 450]",
     "vision_config.image_size",
     {"a multiple of the patches' side 14"}},
    {"internvl2.5-8b",
     "/downsample_ratio",
     "0.3",
     "downsample_ratio",
     {"one over a divisor of the 32 patches", "found 0.3"}},
    {"internvl2.5-8b", "/downsample_ratio", "1e-12", "downsample_ratio", {"one over a divisor"}},
    {"internvl2.5-8b", "/vision_feature_layer", "-4", "vision_feature_layer", {"found -4"}},
    // Qwen2-Audio
    {"qwen2-audio-7b",
     "/audio_config/activation_function",
     "\"relu\"",
     "audio_config.activation_function",
     {"\"gelu\"", "found \"relu\""}},
    {"qwen2-audio-7b",
     "/audio_config/scale_embedding",
     "true",
     "audio_config.scale_embedding",
     {"expected false", "found true"}},
    {"qwen2-audio-7b",
     "/audio_config/encoder_attention_heads",
     "24",
     "audio_config.encoder_attention_heads",
     {"a divisor of the width 1280", "found 24"}},
    {"qwen2-audio-7b", "/audio_config", "", "audio_config", {"expected this key, found none"}}};

TEST(HuggingFace, UnsupportedFeaturesAreRejectedByName) {
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(std::string(refusal.model) + " " + refusal.place + " " + refusal.value);
    json config = config_of(refusal.model);
    ASSERT_NO_THROW(read(config));
    const json::json_pointer place(refusal.place);
    if (*refusal.value != '\0') {
      config[place] = json::parse(refusal.value);
    } else {
      config[place.parent_pointer()].erase(place.back());
    }
    const Error error = error_of([&] { read(config); });
    EXPECT_EQ(error.kind(), ErrorKind::input);
    const std::string said = error.what();
    EXPECT_NE(said.find(kFile), std::string::npos) << said;
    EXPECT_NE(said.find(refusal.key), std::string::npos) << said;
    for (const std::string_view word : refusal.words) {
      EXPECT_NE(said.find(word), std::string::npos) << "no '" << word << "' in: " << said;
    }
  }
}

TEST(HuggingFace, RejectsFilesThatAreNoConfig) {
  for (const char* text :
       {"", "[]", "{", "null", "{\"model_type\": 1}", "{\"model_type\": \"qwen2\", \"a\": 1e999}"}) {
    const Error error = error_of([&] { parse_hugging_face(text, kFile); });
    EXPECT_EQ(error.kind(), ErrorKind::input) << text;
    EXPECT_NE(std::string(error.what()).find(kFile), std::string::npos) << error.what();
  }
}

TEST(HuggingFace, FormsOfTransformers5AreReadLikeVersion4) {
  // transformers 5 puts theta into "rope_parameters", and the text model of Qwen2.5-VL under "text_config".
  json llama = config_of("llama-3.1-8b");
  const ModelSpec before = read(llama);
  llama["rope_parameters"] = llama["rope_scaling"];
  llama["rope_parameters"]["rope_theta"] = llama["rope_theta"];
  llama.erase("rope_scaling");
  llama.erase("rope_theta");
  EXPECT_EQ(read(llama), before);

  const json flat = config_of("qwen2.5-vl-7b");
  json nested = flat;
  for (const auto& [key, value] : flat.items()) {
    if (key == "model_type" || key == "vision_config" || key.ends_with("_token_id")) continue;
    nested["text_config"][key] = value;
    if (key != "tie_word_embeddings") nested.erase(key);
  }
  nested["text_config"]["model_type"] = "qwen2_5_vl_text";
  EXPECT_EQ(read(nested), read(flat));
}

struct ProcessorRefusal {
  const char* model;
  const char* place;
  const char* value;
  std::initializer_list<std::string_view> words;
};

const ProcessorRefusal kProcessorRefusals[] = {
    {"qwen2.5-vl-7b",
     "/image_processor_type",
     "\"CLIPImageProcessor\"",
     {"image_processor_type", "Qwen2VLImageProcessor", "found \"CLIPImageProcessor\""}},
    {"qwen2.5-vl-7b", "/patch_size", "16", {"patches with sides of 14", "config.json", "found 16"}},
    {"qwen2.5-vl-7b", "/merge_size", "1", {"merged squares with sides of 2", "config.json", "found 1"}},
    {"qwen2.5-vl-7b", "/temporal_patch_size", "1", {"a number of frames per patch of 2", "found 1"}},
    {"qwen2.5-vl-7b", "/min_pixels", "0", {"min_pixels", "found 0"}},
    {"qwen2.5-vl-7b", "/min_pixels", "99999999", {"99999999", "12845056"}},
    {"llava-onevision-qwen2-7b-ov", "/size", R"({"height": 336, "width": 336})", {"336"}},
    {"llava-onevision-qwen2-7b-ov", "/size", R"({"height": 384, "width": 336})", {"size"}},
    {"llava-onevision-qwen2-7b-ov",
     "/image_grid_pinpoints",
     "[[384, 384]]",
     {"image_grid_pinpoints", "config.json"}},
    {"llava-onevision-qwen2-7b-ov", "/image_grid_pinpoints", "[[384, 400]]", {"384x384", "400x384"}},
    {"llava-onevision-qwen2-7b-ov", "/resample", "0", {"resample", "found 0"}},
    {"llava-onevision-qwen2-7b-ov", "/do_normalize", "false", {"do_normalize", "found false"}},
    {"internvl2.5-8b", "/size", R"({"height": 224, "width": 224})", {"tiles with sides of 448", "found 224"}},
    {"internvl2.5-8b", "/min_patches", "13", {"min_patches", "max_patches, 12", "found 13"}},
    {"qwen2-audio-7b", "/feature_extractor_type", "\"Nope\"", {"WhisperFeatureExtractor", "found \"Nope\""}},
    {"qwen2-audio-7b", "/feature_size", "80", {"mel bins per frame of 128", "config.json", "found 80"}},
    {"qwen2-audio-7b", "/sampling_rate", "44100", {"sampling_rate", "expected 16000", "found 44100"}},
    {"qwen2-audio-7b", "/hop_length", "320", {"hop_length", "expected 160"}},
    {"qwen2-audio-7b", "/n_fft", "800", {"n_fft", "expected 400"}},
    {"qwen2-audio-7b", "/chunk_length", "10", {"chunk_length", "expected 30"}},
    {"qwen2-audio-7b", "/dither", "0.1", {"dither", "expected 0"}},
    {"qwen2-audio-7b", "/padding_side", "\"left\"", {"padding_side", "\"right\""}}};

TEST(HuggingFace, SequencesAreAsLongAsPositions) {
  json config = config_of("llama-3.1-8b");
  config["max_position_embeddings"] = 131'072;
  EXPECT_EQ(read(config).max_tokens, 32'768);
  config["max_position_embeddings"] = 512;
  EXPECT_EQ(read(config).max_tokens, 512);
  config.erase("max_position_embeddings");
  EXPECT_EQ(read(config).max_tokens, 32'768);
  config = config_of("llava-onevision-qwen2-7b-ov");
  config["text_config"]["max_position_embeddings"] = 4096;
  EXPECT_EQ(read(config).max_tokens, 4096);
}

/// Embeddings are tied if one of two places says so and no separate head is stored.
TEST(HuggingFace, TiedEmbeddingsFollowTheTextConfigAndWeights) {
  struct Case {
    std::optional<bool> root, text, own_head;
    bool tied;
  };
  constexpr std::optional<bool> kNone;
  const Case cases[] = {
      {kNone, kNone, kNone, false}, {true, kNone, kNone, true},   {false, true, kNone, true},
      {true, false, kNone, true},   {false, true, false, true},  // LLaVA-OneVision 0.5B has no head
      {true, false, false, true},   {true, false, true, false},   {true, true, true, false},
      {true, true, false, true},    {false, false, false, false},  // the read then reports its missing head
      {false, false, true, false},
  };
  for (const Case& one : cases) {
    json config = config_of("llava-onevision-qwen2-7b-ov");
    for (json* part : {&config, &config["text_config"]}) part->erase("tie_word_embeddings");
    if (one.root) config["tie_word_embeddings"] = *one.root;
    if (one.text) config["text_config"]["tie_word_embeddings"] = *one.text;
    const bool tied = parse_hugging_face(config.dump(), kFile, one.own_head).llm.tied_embeddings;
    EXPECT_EQ(tied, one.tied) << &one - cases;
  }
  json internvl = config_of("internvl2.5-8b");  // its class ties embeddings if its config says nothing
  for (json* part : {&internvl, &internvl["text_config"]}) part->erase("tie_word_embeddings");
  EXPECT_TRUE(read(internvl).llm.tied_embeddings);
}

/// Dynamic scaling of rotary positions begins beyond the longest sequence of a config. No sequence here is
/// longer.
TEST(HuggingFace, DynamicScalingHasNoEffectWithinTheLongestSequence) {
  json config = config_of("qwen2.5-7b");
  const ModelSpec plain = read(config);
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  EXPECT_EQ(read(config), plain);
  EXPECT_LE(plain.max_tokens, config["max_position_embeddings"].get<std::int64_t>());
}

TEST(HuggingFace, BasesOfRotaryPositionsAreRead) {
  json config = config_of("qwen2.5-vl-7b");
  EXPECT_EQ(read(config).encoder.form->rotary->base, 10'000);
  config["vision_config"]["rope_parameters"] = {{"rope_type", "axial"}, {"rope_theta", 500'000.0}};
  EXPECT_EQ(read(config).encoder.form->rotary->base, 500'000);
  config["vision_config"]["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_EQ(read(config).encoder.form->rotary->base, 10'000);
  config.erase("rope_theta");
  EXPECT_EQ(read(config).llm.form->rotary->base, 1'000'000);  // default_theta of its class
}

TEST(HuggingFace, LayerScalesStartAtTheConfigsValue) {
  json config = config_of("internvl2.5-8b");
  EXPECT_EQ(read(config).encoder.form->layer_scale_start, 0.1);
  config["vision_config"]["layer_scale_init_value"] = 1e-5;
  EXPECT_EQ(read(config).encoder.form->layer_scale_start, 1e-5);
}

TEST(HuggingFace, BiasesOfLlamaAreRead) {
  json config = config_of("llama-3.1-8b");
  LayerForm form = *read(config).llm.form;
  EXPECT_FALSE(form.qkv_bias || form.key_bias || form.output_bias || form.mlp_bias);
  config["attention_bias"] = true;
  form = *read(config).llm.form;
  EXPECT_TRUE(form.qkv_bias && form.key_bias && form.output_bias && !form.mlp_bias);
  config["mlp_bias"] = true;
  EXPECT_TRUE(read(config).llm.form->mlp_bias);
}

/// InternVLVisionRMSNorm of queries and keys is made without layer_norm_eps, and so uses its own default of
/// 1e-6.
TEST(HuggingFace, NormsOfQueriesHaveTheirOwnEpsilon) {
  json config = config_of("internvl2.5-26b");
  config["vision_config"]["layer_norm_eps"] = 1e-4;
  const LayerForm form = *read(config).encoder.form;
  ASSERT_EQ(form.qk_norm, QkNormKind::all_heads);
  EXPECT_EQ(form.epsilon, 1e-4);
  EXPECT_EQ(form.qk_epsilon, 1e-6);
}

/// transformers 5 writes all parts of a processor into one file. Its parts take precedence over the separate
/// files of earlier versions.
TEST(HuggingFace, ProcessorsMayStandInOneFile) {
  const ModelSpec model = read(config_of("qwen2.5-vl-7b"));
  const std::filesystem::path released = DFLOP_SOURCE_DIR "/tests/golden/released/qwen2.5-vl-7b";
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("dflop_processors_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto limits = [&] {
    return std::get<QwenProcessor>(read_model_processor(model, folder.string())).max_pixels;
  };
  const json before = json::parse(read_text_file((released / "preprocessor_config.json").string()));
  write_file_atomically((folder / "preprocessor_config.json").string(), before.dump());
  const std::int64_t usual = limits();
  json within = before;
  within["max_pixels"] = 123'456;
  const std::string whole = (folder / "processor_config.json").string();
  write_file_atomically(whole,
                        json{{"processor_class", "Qwen2_5_VLProcessor"}, {"image_processor", within}}.dump());
  EXPECT_EQ(limits(), 123'456);
  write_file_atomically(whole, json{{"processor_class", "Qwen2_5_VLProcessor"}}.dump());
  EXPECT_EQ(limits(), usual);
  std::filesystem::remove(whole);
  std::filesystem::create_symlink(folder / "nowhere", whole);
  const std::string link = error_of([&] { limits(); }).what();
  EXPECT_NE(link.find("processor_config.json: a link that leads nowhere"), std::string::npos) << link;
  std::filesystem::remove(whole);
  write_file_atomically(whole, R"({"image_processor": null})");
  EXPECT_EQ(limits(), usual);
  within["resample"] = 2;
  write_file_atomically(whole, json{{"image_processor", within}}.dump());
  const std::string said = error_of([&] { limits(); }).what();
  EXPECT_NE(said.find("processor_config.json, image_processor: key 'resample'"), std::string::npos) << said;
  std::filesystem::remove_all(folder);
}

TEST(HuggingFace, ProcessorsOfOtherModelsAreRejectedByName) {
  for (const ProcessorRefusal& refusal : kProcessorRefusals) {
    SCOPED_TRACE(std::string(refusal.model) + " " + refusal.place + " " + refusal.value);
    const ModelSpec model = read(config_of(refusal.model));
    const std::string folder = DFLOP_SOURCE_DIR "/tests/golden/released/" + std::string(refusal.model);
    ASSERT_NO_THROW(read_model_processor(model, folder));
    json file = json::parse(read_text_file(folder + "/preprocessor_config.json"));
    file[json::json_pointer(refusal.place)] = json::parse(refusal.value);
    const Error error = error_of([&] { model_processor(model, file.dump(), "preprocessor_config.json"); });
    EXPECT_EQ(error.kind(), ErrorKind::input);
    const std::string said = error.what();
    EXPECT_NE(said.find("preprocessor_config.json"), std::string::npos) << said;
    for (const std::string_view word : refusal.words) {
      EXPECT_NE(said.find(word), std::string::npos) << "no '" << word << "' in: " << said;
    }
  }
}

/// The configs of released models, and of small ones as transformers 5 writes them.
TEST(HuggingFace, EveryKeyOfReleasedConfigsIsReadOrHasNoEffect) {
  int configs = 0;
  for (const char* folder : {"released", "models"}) {
    const std::filesystem::path path = std::filesystem::path(DFLOP_SOURCE_DIR) / "tests/golden" / folder;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (!entry.is_directory()) continue;
      const std::string file = (entry.path() / "config.json").string();
      ConfigReport report;
      parse_hugging_face(read_text_file(file), file, {}, &report);
      EXPECT_EQ(report.unknown, std::vector<std::string>{}) << file;
      ++configs;
    }
  }
  EXPECT_GE(configs, 20);
}

TEST(HuggingFace, UnknownKeysAndDefaultsAreReported) {
  json config = config_of("llama-3.1-8b");
  config["router_z"] = 3;
  config["experts"] = {{"number", 8}};
  config.erase("num_hidden_layers");
  ConfigReport report;
  EXPECT_EQ(parse_hugging_face(config.dump(), kFile, {}, &report).llm.layers, 32);
  EXPECT_EQ(report.unknown, (std::vector<std::string>{"experts", "router_z"}));
  const std::pair<std::string, std::string> layers{"num_hidden_layers", "32"};
  EXPECT_NE(std::find(report.defaults.begin(), report.defaults.end(), layers), report.defaults.end());
}

TEST(HuggingFace, AMisspelledKeyIsRejectedWithItsName) {
  json config = config_of("llama-3.1-8b");
  config["num_hidden_layer"] = config["num_hidden_layers"];
  EXPECT_NO_THROW(read(config));  // the key that is read is there, too
  config.erase("num_hidden_layers");
  const std::string said = error_of([&] { read(config); }).what();
  EXPECT_NE(said.find("key 'num_hidden_layer' is not known; did you mean 'num_hidden_layers'?"),
            std::string::npos)
      << said;
}

TEST(HuggingFace, AnUnknownFamilySaysWhichPartsAreKnown) {
  json config = config_of("llava-onevision-qwen2-7b-ov");
  config["model_type"] = "idefics9";
  config["vision_config"]["model_type"] = "eva";
  const std::string said = error_of([&] { read(config); }).what();
  EXPECT_NE(
      said.find("found \"idefics9\"; text_config \"qwen2\" is known, vision_config \"eva\" is not known"),
      std::string::npos)
      << said;
  config = config_of("llama-3.1-8b");
  config["model_type"] = "mixtral";
  EXPECT_NE(std::string(error_of([&] { read(config); }).what()).find("LLMs with experts are not supported"),
            std::string::npos);
}

/// Returns a text model with heads of 16 values, and these rotary positions.
Rotary rotary_of(const json& rope, int positions) {
  json config = config_of("llama-3.1-8b");
  config["head_dim"] = 16;
  config["max_position_embeddings"] = positions;
  config["rope_scaling"] = rope;
  return *read(config).llm.form->rotary;
}

void expect_factors(const Rotary& rotary, const std::vector<double>& factors, double magnitude) {
  ASSERT_EQ(rotary.factors.size(), factors.size());
  for (std::size_t i = 0; i < factors.size(); ++i) EXPECT_NEAR(rotary.factors[i], factors[i], 1e-6) << i;
  EXPECT_NEAR(rotary.magnitude, magnitude, 1e-9);
}

/// The expected factors are frequencies of transformers 5.24's ROPE_INIT_FUNCTIONS, divided by those without
/// scaling.
TEST(HuggingFace, ScaledRotaryPositionsEqualTransformers) {
  json linear = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 10000.0}};
  expect_factors(rotary_of(linear, 64), std::vector<double>(8, 0.25), 1);
  json yarn = {{"type", "yarn"},
               {"factor", 4.0},
               {"original_max_position_embeddings", 32768},
               {"rope_theta", 10000.0}};
  expect_factors(rotary_of(yarn, 131072), {1, 1, 1, 1, 1, 0.8125, 0.625, 0.4375}, 1.138629436111989);
  yarn = {{"rope_type", "yarn"}, {"factor", 8.0},         {"original_max_position_embeddings", 4096},
          {"beta_fast", 24},     {"beta_slow", 2},        {"truncate", false},
          {"mscale", 1.0},       {"mscale_all_dim", 0.8}, {"rope_theta", 10000.0}};
  expect_factors(rotary_of(yarn, 32768), {1, 1, 1, 0.946462, 0.541062, 0.135662, 0.125, 0.125},
                 1.0356570849393496);
  json longrope = {{"rope_type", "longrope"},
                   {"short_factor", {1, 1.5, 2, 2.5, 3, 3.5, 4, 5}},
                   {"long_factor", {2, 2, 2, 2, 2, 2, 2, 2}},
                   {"original_max_position_embeddings", 4096},
                   {"rope_theta", 10000.0}};
  expect_factors(rotary_of(longrope, 16384), {1, 1 / 1.5, 0.5, 0.4, 1 / 3.0, 1 / 3.5, 0.25, 0.2},
                 1.0801234497346435);
  json config = config_of("llama-3.1-8b");
  config["head_dim"] = 16;
  config["max_position_embeddings"] = 16384;
  config["rope_scaling"] = longrope;
  EXPECT_EQ(read(config).max_tokens, 4096);
}

/// Missing sizes are those of the class in transformers.
TEST(HuggingFace, DefaultsAreTheClasses) {
  json config = config_of("qwen2.5-vl-7b");
  for (const char* key : {"num_hidden_layers", "num_key_value_heads"}) config.erase(key);
  config["num_attention_heads"] = 8;
  config["rope_scaling"]["mrope_section"] = {56, 84, 84};
  const ModelSpec model = read(config);
  EXPECT_EQ(model.llm.layers, 80);
  EXPECT_EQ(model.llm.kv_heads, 8);
}

/// For num_key_value_heads, null means as many as heads. The default of Qwen2-VL for a missing key is 8.
TEST(HuggingFace, NullKeyValueHeadsAreAllHeads) {
  json config = config_of("qwen2-vl-7b");
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(read(config).llm.kv_heads, 28);
}

}  // namespace hugging_face_test
}  // namespace dflop
