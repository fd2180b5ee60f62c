// A transformers folder for tests, with a tokenizer but without weights: the small Qwen2.5-VL with the
// tokenizer of tests/golden/io.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace dflop::testing {

/// Writes config.json and tokenizer.json into an existing folder, for one of tests/golden/models. The
/// tokenizer gets a token for videos and, for Qwen2.5-Omni, the tokens of all its media.
inline void write_shard_folder(const std::string& folder, const std::string& model = "qwen2.5-vl") {
  using nlohmann::json;
  const std::string golden = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/";
  const auto read = [&](const std::string& name) {
    std::ifstream in(golden + name);
    return json::parse(in);
  };
  const bool is_llava = model.starts_with("llava");
  const bool is_omni = model.starts_with("qwen2.5-omni");
  const std::string suffix = is_llava || is_omni ? "_token_index" : "_token_id";
  json tokenizer = read("io/tokenizer-qwen2.json");
  json config = read("models/" + model + "/config.json");
  int most = 0;
  for (const json& id : tokenizer["model"]["vocab"]) most = std::max(most, id.get<int>());
  for (const json& token : tokenizer["added_tokens"]) most = std::max(most, token["id"].get<int>());
  const auto add_token = [&](const char* content) {
    json token = tokenizer["added_tokens"].front();
    token["id"] = ++most;
    token["content"] = content;
    tokenizer["added_tokens"].push_back(token);
  };
  const std::string image = is_llava ? "<image>" : is_omni ? "<|IMAGE|>" : "<|image_pad|>";
  const int words = most;
  add_token(is_llava ? "<video>" : is_omni ? "<|VIDEO|>" : "<|video_pad|>");
  if (is_llava) add_token("<image>");
  if (is_omni) {
    for (const char* token :
         {"<|vision_bos|>", "<|vision_eos|>", "<|IMAGE|>", "<|audio_bos|>", "<|audio_eos|>", "<|AUDIO|>"})
      add_token(token);
  }
  for (const json& token : tokenizer["added_tokens"]) {
    if (token["content"] == image) config["image" + suffix] = token["id"];
    if (token["content"] == "<|AUDIO|>") config["audio" + suffix] = token["id"];
    if (token["content"] == "<|vision_start|>") config["vision_start_token_id"] = token["id"];
    if (token["content"] == "<|vision_end|>") config["vision_end_token_id"] = token["id"];
    if (token["content"] == "<|vision_bos|>") config["vision_start_token_id"] = token["id"];
    if (token["content"] == "<|vision_eos|>") config["vision_end_token_id"] = token["id"];
    if (token["content"] == "<|audio_bos|>") config["audio_start_token_id"] = token["id"];
    if (token["content"] == "<|audio_eos|>") config["audio_end_token_id"] = token["id"];
  }
  config["video" + suffix] = words + 1;
  if (model == "qwen3-vl") config["vision_config"]["patch_size"] = 16;  // as released, for its usual limits
  config["text_config"]["vocab_size"] = std::max(words + 3, most + 1);  // 708, divisible by tp 2
  std::ofstream(folder + "/config.json") << config;
  std::ofstream(folder + "/tokenizer.json") << tokenizer;
}

/// Returns an entry of a tar.
inline std::string tar_entry(const std::string& name, const std::string& bytes) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  const auto octal = [](std::size_t number, int digits) {
    std::ostringstream text;
    text << std::oct << std::setfill('0') << std::setw(digits) << number;
    return text.str();
  };
  put(0, name);
  put(100, "0000644");
  put(124, octal(bytes.size(), 11));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, "ustar");
  put(263, "00");
  std::size_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6) + std::string(1, '\0') + " ");
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

/// Returns a tar with one sample, "one": a conversation about a picture or another medium, and the medium's
/// bytes.
inline std::string tar_of_sample(const std::string& medium, const std::string& extension = "jpg",
                                 const std::string& words = "<image>") {
  const std::string conversation =
      R"({"conversations": [{"from": "human", "value": ")" + words + R"("}, {"from": "gpt", "value": "x"}]})";
  return tar_entry("one." + extension, medium) + tar_entry("one.json", conversation) +
         std::string(1024, '\0');
}

/// A ShardFolder is removed by its destructor.
class ShardFolder {
 public:
  explicit ShardFolder(const std::string& model = "qwen2.5-vl") {
    std::string pattern = (std::filesystem::temp_directory_path() / "dflop-shards-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    write_shard_folder(path_, model);
  }
  ~ShardFolder() { std::filesystem::remove_all(path_); }
  ShardFolder(const ShardFolder&) = delete;
  ShardFolder& operator=(const ShardFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace dflop::testing
