// dflop models --check names what is read, not read and rejected of a model folder.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop {
namespace models_check_test {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kModels = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/models/";
const std::string kEmoji = std::string(DFLOP_SOURCE_DIR) + "/traces/emoji";

/// Returns the findings about each part, "state: finding", a line each.
std::map<std::string, std::string> findings(const RunResult& result) {
  std::map<std::string, std::string> all;
  const json printed = json::parse(result.out);
  for (const json& row : printed["rows"]) {
    all[row["part"]] += row["state"].get<std::string>() + ": " + row["finding"].get<std::string>() + "\n";
  }
  return all;
}

struct ModelsCheck : ::testing::Test {
  Sandbox sandbox;

  RunResult check(const std::string& arguments) {
    return sandbox.run("models --format json --check " + arguments);
  }
  /// Copies a golden model, whose config may be changed.
  std::string copy_of(const std::string& name) {
    const fs::path folder = sandbox.path("model");
    fs::create_directory(folder);
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(kModels + name + "/" + file, folder / file);
    return folder.string();
  }
};

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in " << text;
}

TEST_F(ModelsCheck, ReadsAFolderAndItsData) {
  const RunResult result = check(kEmoji + "/model --data " + kEmoji + "/train.tar");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  auto found = findings(result);
  expect_has(found["config.json"], "read: qwen2_5_vl: qwen2.5-vl-vit 4 x 128");
  expect_has(found["weights"], "note: none: training begins with random weights");
  expect_has(found["processor"], "read: patches of 12 x 12");
  expect_has(found["tokenizer"], "775 tokens; chat form qwen2");
  expect_has(found["data"], "67 samples, 2837 tokens");
}

TEST_F(ModelsCheck, NamesKeysAndTensorsThatAreNotRead) {
  const std::string folder = copy_of("llama3");
  json config = json::parse(testing::read_all(folder + "/config.json"));
  config["router_z"] = 1;
  config["num_hidden_layers"] = config["num_hidden_layers"].get<int>() - 1;
  testing::write_all(folder + "/config.json", config.dump());
  const RunResult result = check(folder);
  EXPECT_EQ(result.exit_code, 2);  // it has no tokenizer
  auto found = findings(result);
  expect_has(found["config.json"], "note: keys that are not read: router_z");
  expect_has(found["weights"], "note: 9 tensors are not read: model.layers.");  // 4 products, 3 MLP, 2 norms
  expect_has(found["tokenizer"], "rejected: ");
}

TEST_F(ModelsCheck, ComparesTokensWithTheTokenizer) {
  const fs::path folder = sandbox.path("model");
  fs::copy(kEmoji + "/model", folder);
  json config = json::parse(testing::read_all(folder / "config.json"));
  for (const char* key : {"image_token_id", "vision_start_token_id"}) {
    json other = config;
    other[key] = 17;
    testing::write_all(folder / "config.json", other.dump());
    const RunResult result = check(folder.string());
    EXPECT_EQ(result.exit_code, 2);
    expect_has(findings(result)["tokenizer"], fmt::format("with id 17, as config.json's '{}' says", key));
  }
}

/// The sound encoder's table of 32 positions of 48 numbers is computed, not trained.
TEST_F(ModelsCheck, CountsComputedTablesApart) {
  const std::string found = findings(check(copy_of("qwen2-audio")))["config.json"];
  expect_has(found, " million parameters, and 0.001536 million numbers of fixed position tables;");
}

/// transformers writes both "model." and "thinker.model." for Qwen2.5-Omni, but not into one file.
TEST_F(ModelsCheck, RejectsWeightsOfTwoNames) {
  const std::string folder = copy_of("llama3");
  const std::string file = folder + "/model.safetensors";
  // A second tensor with the same bytes: the header's length and text are rewritten.
  const std::string bytes = testing::read_all(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  json header = json::parse(bytes.substr(8, length));
  const json tensor = header["model.embed_tokens.weight"];
  const std::size_t size = bytes.size() - 8 - length;
  const std::size_t own =
      tensor["data_offsets"][1].get<std::size_t>() - tensor["data_offsets"][0].get<std::size_t>();
  header["embed_tokens.weight"] = tensor;
  header["embed_tokens.weight"]["data_offsets"] = {size, size + own};
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  length = text.size();
  testing::write_all(file, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text +
                               bytes.substr(bytes.size() - size) + std::string(own, '\0'));
  expect_has(findings(check(folder))["weights"],
             "rejected: " + folder +
                 ": expected one tensor of 'model.embed_tokens.weight' and "
                 "'embed_tokens.weight', found both");
}

TEST_F(ModelsCheck, NamesMissingTensors) {
  const std::string folder = copy_of("llama3");
  json config = json::parse(testing::read_all(folder + "/config.json"));
  config["num_hidden_layers"] = config["num_hidden_layers"].get<int>() + 1;
  testing::write_all(folder + "/config.json", config.dump());
  const RunResult result = check(folder);
  EXPECT_EQ(result.exit_code, 2);
  expect_has(findings(result)["weights"], "rejected: ");
  expect_has(findings(result)["weights"], "9 tensors are missing: model.layers.");
}

TEST_F(ModelsCheck, SaysWhyAFamilyIsRejected) {
  const std::string folder = copy_of("llama3");
  testing::write_all(folder + "/config.json", R"({"model_type": "qwen3_moe"})");
  const RunResult result = check(folder);
  EXPECT_EQ(result.exit_code, 2);
  expect_has(findings(result)["config.json"], "LLMs with experts are not supported");
}

TEST_F(ModelsCheck, PredictsTimes) {
  const RunResult result = check(kEmoji + "/model --data " + kEmoji + "/train.tar");
  expect_has(findings(result)["times"], "note: 1,000 of these samples take ");
  expect_has(findings(result)["times"], "cluster h100 (--cluster)");
  expect_has(result.err, "samples/s on one thread of this machine, the mean of the first 32");
  expect_has(findings(check(kEmoji + "/model --cluster a100-80g --data " + kEmoji + "/train.tar"))["times"],
             "cluster a100-80g");
}

/// The second picture's header is whole, but its pixels are cut off.
TEST_F(ModelsCheck, ListsBadSamples) {
  const std::string photo = testing::read_all(std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/photo.jpg");
  testing::write_all(sandbox.path("a.jpg"), photo);
  testing::write_all(sandbox.path("half.jpg"), photo.substr(0, photo.size() / 2));
  std::string lines;
  for (const char* picture : {"a", "half", "none"}) {
    lines += fmt::format(R"({{"image": "{}.jpg", "conversations": [{{"from": "human", "value": "<image>"}}, )"
                         R"({{"from": "gpt", "value": "x"}}]}})"
                         "\n",
                         picture);
  }
  testing::write_all(sandbox.path("a.jsonl"), lines);
  const std::string data = kEmoji + "/model --data " + sandbox.path("a.jsonl").string();
  const RunResult all = check(data);
  EXPECT_EQ(all.exit_code, 2);
  const std::string found = findings(all)["data"];
  expect_has(found, "read: 1 samples");
  expect_has(found, "pictures and sounds of all decoded");
  expect_has(found, "rejected: bad sample a.jsonl/2: ");
  expect_has(found, "rejected: bad sample a.jsonl/3: ");
  const std::string headers = findings(check(data + " --decode 1"))["data"];
  expect_has(headers, "read: 2 samples");
  expect_has(headers, "pictures and sounds of the first 1 (--decode) decoded");
  const RunResult skipped = check(data + " --bad-samples skip:2");
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  expect_has(findings(skipped)["data"], "note: bad sample a.jsonl/2: ");
  EXPECT_EQ(check(data + " --bad-samples skip:1").exit_code, 2);
}

/// model.safetensors is read, whatever the index next to it says.
TEST_F(ModelsCheck, NamesBothFilesOfWeights) {
  const std::string folder = copy_of("llama3");
  EXPECT_EQ(findings(check(folder))["weights"].find("index"), std::string::npos);
  testing::write_all(folder + "/model.safetensors.index.json", R"({"weight_map": {}})");
  expect_has(findings(check(folder))["weights"],
             "note: only model.safetensors is read, as in transformers, although there is also "
             "model.safetensors.index.json");
}

TEST_F(ModelsCheck, SaysThatLongerPositionsAreNotUsed) {
  const std::string folder = copy_of("llama3");
  json config = json::parse(testing::read_all(folder + "/config.json"));
  for (const auto& [positions, is_said] : {std::pair{131072, true}, {32768, false}}) {
    config["max_position_embeddings"] = positions;
    testing::write_all(folder + "/config.json", config.dump());
    const std::string found = findings(check(folder))["config.json"];
    expect_has(found, "sequences of at most 32768 tokens");
    EXPECT_EQ(found.find("allows sequences of 131072 tokens") != std::string::npos, is_said) << found;
  }
}

TEST_F(ModelsCheck, RejectsRecords) {
  testing::write_all(sandbox.path("a.csv"), "id\n");
  const RunResult result = check(kEmoji + "/model --data a.csv");
  EXPECT_EQ(result.exit_code, 2) << result.err;
  expect_has(findings(result)["data"], "rejected: a.csv: expected tars");
}

TEST_F(ModelsCheck, NeedsAFolder) {
  for (const std::string& path : {kEmoji + "/model/config.json", std::string("none")})
    testing::expect_error(check(path),
                          {"option '--check': expected the folder of a Transformers model", path});
}

TEST_F(ModelsCheck, DataAreOnlyForChecks) {
  const RunResult result = sandbox.run("models --data x.tar");
  EXPECT_EQ(result.exit_code, 2);
  expect_has(result.err, "option '--data': applies only with --check");
  expect_has(sandbox.run("models --decode 3").err, "option '--decode': applies only with --check");
}

}  // namespace models_check_test
}  // namespace dflop
