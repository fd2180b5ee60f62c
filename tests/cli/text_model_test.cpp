// Models without an encoder: plan, simulate and train.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace text_model_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kModel = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/models/llama3";

struct TextModel : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override {
    std::string records =
        "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,"
        "n_texts,prompt_tokens,answer_tokens,text_tokens\n";
    for (int i = 0; i < 24; ++i) {
      records += "t" + std::to_string(i) + ",made,,text,,,,,,,,,1,," + "," + std::to_string(8 + 5 * i) + "\n";
    }
    testing::write_all(sandbox.path("t.csv"), records);
  }
  RunResult run(const std::string& command) {
    return sandbox.run(command + " --hf " + kModel + " --data t.csv --gbs 8");
  }
  json losses(const std::string& options) {
    const RunResult result = run("train --learning-rate 0.01 --steps 2 --format json " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    json all = json::array();
    for (const json& step : testing::rows_of(result.out)) all.push_back(step["loss"]);
    return all;
  }
};

TEST_F(TextModel, IsPlannedInOnePipelineAndSimulated) {
  const RunResult planned = run("plan --planner search --cluster a100-80g:1 --out plan.json");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const json plan = json::parse(testing::read_all(sandbox.path("plan.json")));
  EXPECT_EQ(plan["layout"], "uniform");
  for (const json& layers : plan["encoder"]["layers"]) EXPECT_EQ(layers, 0);
  const RunResult scheduled = sandbox.run(
      "schedule --plan plan.json --data t.csv --scheduler lpt --iterations 2 --out schedule.json");
  ASSERT_EQ(scheduled.exit_code, 0) << scheduled.err;
  const RunResult simulated = sandbox.run("simulate --plan plan.json --schedule schedule.json");
  EXPECT_EQ(simulated.exit_code, 0) << simulated.err;
}

TEST_F(TextModel, HasNoPlanWithEncoderRanks) {
  for (const char* planner : {"dflop", "dflop-expected"}) {
    const RunResult result = run(std::string("plan --cluster a100-80g:1 --planner ") + planner);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_NE(result.err.find("no encoder"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("--planner search"), std::string::npos) << result.err;
  }
}

/// Losses equal one rank's under every plan, except that f32 sums run in another order.
TEST_F(TextModel, HasTheSameLossesUnderEveryPlan) {
  const json expected = losses("");
  for (const char* wish : {"--tp 2 --microbatches 2", "--pp 2 --order zb-h1 --microbatches 4",
                           "--pp 2 --dp 2 --order 1f1b --microbatches 2"}) {
    const json found = losses(wish);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(found[step].get<double>(), expected[step].get<double>(),
                  1e-4 * expected[step].get<double>())
          << wish;
    }
  }
}

/// A profile is measured and used for a plan, which is simulated and run: one model through all commands.
TEST_F(TextModel, IsPlannedSimulatedAndTrainedByItsProfile) {
  const RunResult profiled = sandbox.run(
      "profile --device host --budget-s 0.2 --most-tokens 64 --tp 1 2 --ranks 4 --out p.json --hf " + kModel);
  ASSERT_EQ(profiled.exit_code, 0) << profiled.err;
  EXPECT_EQ(profiled.out.find("encoder"), std::string::npos);
  const RunResult planned =
      run("plan --planner search --profile p.json --cluster a100-80g:1 --out plan.json");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const RunResult scheduled = sandbox.run(
      "schedule --plan plan.json --profile p.json --data t.csv --scheduler lpt --iterations 2 --out s.json");
  ASSERT_EQ(scheduled.exit_code, 0) << scheduled.err;
  const RunResult simulated =
      sandbox.run("simulate --plan plan.json --profile p.json --schedule s.json --format json");
  EXPECT_EQ(simulated.exit_code, 0) << simulated.err;
  const RunResult trained = sandbox.run(
      "train --learning-rate 0.01 --plan plan.json --profile p.json --data t.csv --steps 2 --format json");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  for (const json& step : testing::rows_of(trained.out)) EXPECT_GT(step["predicted_s"].get<double>(), 0);
}

}  // namespace text_model_test
}  // namespace dflop
