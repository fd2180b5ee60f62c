// A folder of transformers for tests that has a tokenizer but no weights: the small Qwen2.5-VL with the
// tokenizer of tests/golden/io.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace dflop::testing {

/// Writes config.json and tokenizer.json into a folder that is there.
inline void write_shard_folder(const std::string& folder) {
  using nlohmann::json;
  const std::string golden = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/";
  const auto read = [&](const std::string& name) {
    std::ifstream in(golden + name);
    return json::parse(in);
  };
  const json tokenizer = read("io/tokenizer-qwen2.json");
  json config = read("models/qwen2.5-vl/config.json");
  int most = 0;
  for (const json& id : tokenizer["model"]["vocab"]) most = std::max(most, id.get<int>());
  for (const json& token : tokenizer["added_tokens"]) {
    most = std::max(most, token["id"].get<int>());
    if (token["content"] == "<|image_pad|>") config["image_token_id"] = token["id"];
  }
  config["video_token_id"] = most + 1;
  config["text_config"]["vocab_size"] = most + 3;  // 708, which tp 2 divides
  std::ofstream(folder + "/config.json") << config;
  std::ofstream(folder + "/tokenizer.json") << tokenizer;
}

/// A ShardFolder is one that is removed at the end.
class ShardFolder {
 public:
  ShardFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dflop-shards-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    write_shard_folder(path_);
  }
  ~ShardFolder() { std::filesystem::remove_all(path_); }
  ShardFolder(const ShardFolder&) = delete;
  ShardFolder& operator=(const ShardFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace dflop::testing
