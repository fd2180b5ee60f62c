#include "traces/weights/folder.hpp"

#include <set>
#include <thread>

#include "tests/traces/weights/weights_fixtures.hpp"
#include "traces/weights/own_head.hpp"
#include "traces/weights/writer.hpp"

namespace dflop {
namespace weights_folder_test {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(DFLOP_SOURCE_DIR) / "tests" / "golden" / "models";

/// Tensors and bytes were counted in Python, as in safetensors_test.cpp, over model*.safetensors.
TEST(WeightsFolder, FindsAllTensorsOfGoldenModels) {
  const auto expect = [](const char* model, std::size_t tensors, std::uint64_t bytes, std::size_t files) {
    const WeightsFolder folder((kModels / model).string());
    folder.open_all();
    std::uint64_t found = 0;
    std::set<const SafetensorsFile*> found_files;
    for (const std::string& name : folder.names()) {
      const Weight weight = folder.at(name);
      EXPECT_EQ(weight.tensor->name, name);
      found += weight.tensor->bytes;
      found_files.insert(weight.file);
    }
    EXPECT_EQ(folder.names().size(), tensors) << model;
    EXPECT_EQ(found, bytes) << model;
    EXPECT_EQ(found_files.size(), files) << model;
  };
  expect("internvl-300m-style", 72, 574304, 1);
  expect("llama3", 21, 410880, 1);
  expect("llava-onevision-qwen2", 69, 609824, 1);
  expect("qwen2-audio", 66, 610208, 1);
  expect("qwen2-tied", 26, 329984, 1);
  expect("qwen2.5-vl", 81, 1000256, 3);
}

TEST(WeightsFolder, UnknownNamesAreOfferedKnownOnes) {
  const std::string path = (kModels / "llama3").string();
  const WeightsFolder folder(path);
  EXPECT_FALSE(folder.find("lm_head.weigth"));
  expect_refused([&] { folder.at("lm_head.weigth"); }, path,
                 {"'lm_head.weigth'", "did you mean 'lm_head.weight'"});
}

/// Returns the bytes of a file with one-byte tensors of these names.
std::string file_of(const std::vector<std::string>& names) {
  std::vector<TensorShape> tensors;
  for (const std::string& name : names) tensors.push_back({name, Dtype::u8, {1}});
  return header_bytes(lay_out(tensors, {})) + std::string(names.size(), 'x');
}

class WeightsFolders : public WeightsTest {
 protected:
  /// Writes an index with "a" and "b" in file 1 and "c" in file 2.
  void write_index() const {
    write("model.safetensors.index.json",
          R"({"metadata": {"total_size": 3}, "weight_map": {"a": "1", "b": "1", "c": "2"}})");
  }
  std::string index() const { return path("model.safetensors.index.json"); }
};

TEST_F(WeightsFolders, FilesAreOpenedWhenTheyAreNeeded) {
  write_index();
  write("1", file_of({"a", "b", "extra"}));
  const WeightsFolder folder(folder_.string());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(folder.at("b").tensor->name, "b");
  EXPECT_FALSE(folder.find("extra"));  // not a weight of the model
  expect_refused([&] { folder.at("c"); }, index(), {"expected the file 2", "found none"});
  expect_refused([&] { folder.open_all(); }, index(), {"expected the file 2"});
  write("2", file_of({"c"}));
  folder.open_all();
  EXPECT_EQ(folder.at("c").file->path(), path("2"));
}

TEST_F(WeightsFolders, ThreadsOpenAFileOnce) {
  write_index();
  write("1", file_of({"a", "b"}));
  const WeightsFolder folder(folder_.string());
  std::vector<const SafetensorsFile*> found(8);
  std::vector<std::thread> threads;
  for (auto& one : found) threads.emplace_back([&] { one = folder.at("a").file; });
  for (std::thread& thread : threads) thread.join();
  for (const auto* one : found) EXPECT_EQ(one, found[0]);
}

TEST_F(WeightsFolders, ATensorThatItsFileLacksIsRejected) {
  write_index();
  write("1", file_of({"a"}));
  const WeightsFolder folder(folder_.string());
  expect_refused([&] { folder.at("a"); }, path("1"), {"the tensor 'b'", "model.safetensors.index.json says"});
}

TEST_F(WeightsFolders, ATensorInTwoFilesIsRejected) {
  write_index();
  write("1", file_of({"a", "b"}));
  write("2", file_of({"c", "a"}));
  const WeightsFolder folder(folder_.string());
  EXPECT_EQ(folder.at("a").file->path(), path("1"));
  expect_refused([&] { folder.open_all(); }, path("2") + ": tensor 'a'",
                 {"expected it only in 1", "found it here, too"});
}

/// 100 rows of 2: every row is compared, as the stride is 100 / 64 = 1 for 64 rows.
TEST_F(WeightsFolders, TellWhetherTheHeadIsTheEmbedding) {
  const std::string folder = folder_.string();
  EXPECT_EQ(has_own_head(folder), std::nullopt);
  const auto save = [&](const std::vector<std::string>& names, std::size_t changed) {
    std::vector<TensorShape> tensors;
    for (const std::string& name : names) tensors.push_back({name, Dtype::f32, {100, 2}});
    WeightsWriter writer(folder, tensors, {});
    for (const std::string& name : names) {
      std::vector<float> values(200, 1.5F);
      if (name.ends_with("lm_head.weight") && changed < values.size()) values[changed] = 2;
      writer.append(name, std::span<const float>(values));
    }
    writer.finish();
  };
  save({"model.embed_tokens.weight", "other.weight"}, 0);
  EXPECT_EQ(has_own_head(folder), false);
  for (const std::string prefix : {"", "language_model."}) {
    save({"language_model.model.embed_tokens.weight", prefix + "lm_head.weight"}, 1000);
    EXPECT_EQ(has_own_head(folder), false) << "a copy";
    save({"language_model.model.embed_tokens.weight", prefix + "lm_head.weight"}, 199);
    EXPECT_EQ(has_own_head(folder), true);
  }
  write("model.safetensors", "damaged");
  EXPECT_EQ(has_own_head(folder), std::nullopt);
}

TEST_F(WeightsFolders, OneFileTakesPrecedenceOverAnIndex) {
  write_index();
  write("model.safetensors", file_of({"all"}));
  const WeightsFolder folder(folder_.string());
  EXPECT_EQ(folder.names(), std::vector<std::string>{"all"});
  expect_refused([&] { folder.at("a"); }, folder_.string(),
                 {"only model.safetensors is read", "there is also model.safetensors.index.json"});
}

TEST_F(WeightsFolders, FoldersWithoutWeightsAreRejected) {
  const auto refused = [&](std::initializer_list<std::string_view> words) {
    expect_refused([&] { WeightsFolder folder(folder_.string()); }, folder_.string(), words);
  };
  write("config.json", "{}");
  refused({"model.safetensors or model.safetensors.index.json", "found neither"});
  write("pytorch_model.bin", "x");
  refused({"model.safetensors", "pytorch_model.bin", "can run code", "save_pretrained()"});
  write("model-00001-of-00002.safetensors", "x");
  refused({"found only model-00001-of-00002.safetensors"});
  expect_refused([&] { WeightsFolder folder(path("none")); }, path("none"), {"No such file"});
  expect_refused([&] { WeightsFolder folder(path("config.json")); }, path("config.json"),
                 {"Not a directory"});
}

TEST_F(WeightsFolders, FilesOfOtherFoldersAreRejected) {
  for (const std::string file : {"../1", "/etc/passwd", "x/1", "..", ".", "", "x\\\\1", "a\\u0000b"}) {
    expect_refused([&] { parse_weight_map(R"({"weight_map": {"w": ")" + file + "\"}}", "i.json"); },
                   "i.json: key 'weight_map.w'", {"a file in the same folder"});
  }
}

TEST_F(WeightsFolders, WrongIndicesAreRejected) {
  const auto refused = [](const std::string& text, const std::string& context,
                          std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_weight_map(text, "i.json"); }, context, words);
  };
  refused("", "i.json:1:1", {"expected JSON"});
  refused("[]", "i.json", {"an object"});
  refused("{}", "i.json: key 'weight_map'", {"expected this key"});
  refused(R"({"weight_map": []})", "i.json: key 'weight_map'", {"an object"});
  refused(R"({"weight_map": {"a": 1}})", "i.json: key 'weight_map.a'", {"a string", "found 1"});
  refused(R"({"weight_map": {"a": "1", "a": "2"}})", "i.json: key 'weight_map.a'", {"each key once"});
  refused(R"({"weight_map": {}, "metadata": 1})", "i.json: key 'metadata'", {"an object"});
  refused(R"({"weight_map": {}, "weights": 1})", "i.json: key 'weights'", {"unknown key"});
}

TEST(WeightMap, ReadsBackUnchanged) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    WeightMap weights = {{"", "without a name"}};
    for (std::uint64_t i = random.below(20); i > 0; --i)
      weights[random_name(random, i)] = "model-" + std::to_string(random.below(3));
    EXPECT_EQ(parse_weight_map(weight_map_text(weights, random.below(1 << 20)), "i.json"), weights);
  }
}

}  // namespace weights_folder_test
}  // namespace dflop
