// For tests that train on shards: a transformers folder, and the losses that a run prints.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"
#include "tests/traces/dataset/shard_folder.hpp"

namespace dflop::testing {

/// A ShardTraining is a sandbox with the folder "hf", whose model is trained.
struct ShardTraining : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override {
    std::filesystem::create_directory(sandbox.path("hf"));
    write_shard_folder(sandbox.path("hf").string());
  }
  RunResult train_on(const std::string& data, int gbs, const std::string& options) {
    return sandbox.run("train --hf hf --random-weights --learning-rate 3e-3 --format json --gbs " +
                       std::to_string(gbs) + " --data " + data + " " + options);
  }
  /// Returns the loss of each step of a run that must succeed.
  static std::vector<double> losses(const RunResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<double> all;
    if (result.exit_code != 0) return all;
    for (const nlohmann::json& step : testing::rows_of(result.out)) all.push_back(step["loss"]);
    return all;
  }
};

}  // namespace dflop::testing
