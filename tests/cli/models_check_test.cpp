// dflop models --check names what is read, not read and rejected of a model folder.
#include <gtest/gtest.h>

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

TEST_F(ModelsCheck, DataAreOnlyForChecks) {
  const RunResult result = sandbox.run("models --data x.tar");
  EXPECT_EQ(result.exit_code, 2);
  expect_has(result.err, "option '--data': applies only with --check");
}

}  // namespace models_check_test
}  // namespace dflop
