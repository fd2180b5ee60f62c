// dflop train evaluates on held-out data.
#include "experiments/training/held_out.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run.hpp"
#include "tests/traces/dataset/shard_folder.hpp"

namespace dflop {
namespace held_out_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

std::vector<std::size_t> sizes(std::size_t samples, int gbs, std::int64_t most = 100) {
  Plan plan;
  plan.microbatches = 2;
  plan.llm.dp = 2;
  plan.gbs = gbs;
  std::vector<std::size_t> found;
  for (const Batch& batch : held_out_batches(std::vector<Sample>(samples), plan, most)) {
    found.push_back(batch.size());
  }
  return found;
}

/// A batch of two microbatches and two dp ranks has at least four samples.
TEST(HeldOutBatches, TheRestIsABatchIfItFillsAllBins) {
  EXPECT_EQ(sizes(16, 8), (std::vector<std::size_t>{8, 8}));
  EXPECT_EQ(sizes(20, 8), (std::vector<std::size_t>{8, 8, 4}));
  EXPECT_EQ(sizes(19, 8), (std::vector<std::size_t>{8, 8}));
  EXPECT_EQ(sizes(5, 8), (std::vector<std::size_t>{5}));
  EXPECT_EQ(sizes(20, 8, 2), (std::vector<std::size_t>{8, 8}));
}

struct HeldOut : ::testing::Test {
  Sandbox sandbox;

  HeldOut() {
    testing::write_all(sandbox.path("d.csv"), testing::image_records());
    testing::write_all(sandbox.path("e.csv"), testing::image_records(8));
  }
  json train(const std::string& options, const std::string& data = "d.csv") {
    const bool names_gbs = options.find("--gbs") != std::string::npos;
    const RunResult result =
        sandbox.run("train --format json --data " + data + (names_gbs ? " " : " --gbs 4 ") + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return testing::rows_of(result.out);
  }
  static std::vector<double> of(const json& steps, const char* key) {
    std::vector<double> all;
    for (const json& step : steps) all.push_back(step[key].is_null() ? -1 : step[key].get<double>());
    return all;
  }
};

/// Evaluations follow steps 2, 4 and the last one. Losses are bit-identical to a run without
/// evaluation.
TEST_F(HeldOut, ChangesNoStep) {
  for (const char* plan : {"", "--tp 2 --pp 2 --microbatches 4 --pipeline-schedule zb-h1 "}) {
    const json plain = train(std::string(plan) + "--steps 5");
    const json found = train(std::string(plan) + "--steps 5 --eval-data e.csv --eval-every 2 --log l.jsonl");
    EXPECT_EQ(of(found, "loss"), of(plain, "loss"));
    const std::vector<double> losses = of(found, "eval_loss");
    ASSERT_EQ(losses.size(), 5U);
    for (const std::size_t step : {0U, 2U}) EXPECT_EQ(losses[step], -1);
    for (const std::size_t step : {1U, 3U, 4U}) EXPECT_GT(losses[step], 4);
    EXPECT_FALSE(plain[0].contains("eval_loss"));
    std::istringstream log(testing::read_all(sandbox.path("l.jsonl")));
    std::vector<double> logged;
    for (std::string line; std::getline(log, line);) {
      const json step = json::parse(line);
      logged.push_back(step["eval_loss"].is_null() ? -1 : step["eval_loss"].get<double>());
      EXPECT_EQ(step["eval_s"].is_null(), step["eval_loss"].is_null());
    }
    EXPECT_EQ(logged, losses);
    std::filesystem::remove(sandbox.path("l.jsonl"));
  }
}

/// An unchanged model has the same loss on nine samples as one batch and as batches of five and four, because
/// each token has the same weight. The loss of the batch of five by itself differs.
TEST_F(HeldOut, TokensWeighAlike) {
  const auto loss = [&](const std::string& options) {
    return train("--learning-rate 0 --steps 1 --eval-data e.csv " + options)[0]["eval_loss"].get<double>();
  };
  const double all = loss("--gbs 9");
  EXPECT_NEAR(loss("--gbs 5"), all, 1e-5 * all);
  EXPECT_GT(std::abs(loss("--gbs 5 --eval-steps 1") - all), 1e-4 * all);
}

/// A finished run is evaluated from its last checkpoint.
TEST_F(HeldOut, EvaluatesAFinishedRun) {
  const std::string run = "--steps 2 --eval-data e.csv --checkpoint c ";
  const double expected = of(train(run), "eval_loss").back();
  const RunResult again =
      sandbox.run("train --format json --data d.csv --gbs 4 " + run + "--resume --record r.json");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.err.find(fmt::format("eval loss {:.4f} after step 2", expected)), std::string::npos)
      << again.err;
  EXPECT_FALSE(sandbox.has("r.json"));
}

TEST_F(HeldOut, ReadsTars) {
  std::filesystem::create_directory(sandbox.path("hf"));
  testing::write_shard_folder(sandbox.path("hf").string());
  const std::string tar = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/shard-000000.tar";
  const json steps =
      train("--hf hf --random-weights --learning-rate 0 --steps 1 --gbs 3 --eval-data " + tar, tar);
  const double loss = steps[0]["loss"];
  EXPECT_NEAR(steps[0]["eval_loss"].get<double>(), loss, 1e-5 * loss);
}

/// Damaged held-out data ends the run, but the step before it is logged and saved.
TEST_F(HeldOut, DamagedDataCostsNoStep) {
  std::string tar = testing::read_all(std::string(DFLOP_SOURCE_DIR) + "/traces/emoji/held-out.tar");
  const std::size_t pixels = tar.find("IDAT") + 100;
  tar[pixels] = static_cast<char>(tar[pixels] ^ 1);
  testing::write_all(sandbox.path("bad.tar"), tar);
  const RunResult result = sandbox.run(
      "train --hf traces/emoji/model --random-weights --steps 1 --gbs 7 --data traces/emoji/held-out.tar "
      "--eval-data bad.tar --checkpoint run --log l.jsonl");
  EXPECT_EQ(result.exit_code, 2);
  for (const char* part : {"bad.tar", "sample '1f4f5'", ".png"})
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  EXPECT_EQ(json::parse(testing::read_all(sandbox.path("l.jsonl")))["step"], 1);
  EXPECT_TRUE(sandbox.has("run/step-00000001/checkpoint.json"));
}

TEST_F(HeldOut, RejectsUnsupportedOptions) {
  const auto refuses = [&](const std::string& options, const std::vector<std::string>& parts) {
    testing::expect_error(sandbox.run("train --gbs 4 --steps 1 --data d.csv " + options), parts);
  };
  refuses("--eval-every 2", {"--eval-every", "--eval-data"});
  refuses("--eval-steps 2", {"--eval-steps", "--eval-data"});
  refuses("--eval-data none.csv", {"none.csv"});
  refuses("--eval-data e.csv --eval-steps 0", {"--eval-steps", "from 1"});
  testing::write_all(sandbox.path("two.csv"), testing::image_records(0));
  refuses("--eval-data two.csv", {"two.csv", "expected at least 4 samples", "found 1"});
}

}  // namespace held_out_test
}  // namespace dflop
