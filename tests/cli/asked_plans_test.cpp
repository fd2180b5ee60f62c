// Plans that are requested but infeasible, and requests that used to be rejected.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop {
namespace asked_plans_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

const std::string kData = "--data traces/datasets/vision_mix.csv --modalities image --iterations 1 --gbs 32 ";

TEST(AskedPlans, AnInfeasiblePlanIsAResultInJson) {
  const Sandbox sandbox;
  // 72 billion parameters on 8 GPUs.
  const std::string plan =
      "plan " + kData + "--model internvl2.5-72b --cluster a100-80g:1 --planner megatron --format ";
  const RunResult result = sandbox.run(plan + "json");
  EXPECT_EQ(result.exit_code, 3);
  const json out = json::parse(result.out, nullptr, false);
  EXPECT_EQ(out["schema"], "dflop.infeasible");
  EXPECT_EQ(out["version"], 1);
  const std::string reason = out["infeasible"];
  EXPECT_NE(result.err.find("dflop: infeasible: " + reason), std::string::npos) << result.err;
  EXPECT_TRUE(sandbox.run(plan + "table").out.empty());
}

TEST(AskedPlans, AnInfeasibleScheduleIsAResultInJson) {
  const Sandbox sandbox;
  const std::string data = kData + "--model llava-ov-llama3-8b --cluster a100-80g:1 ";
  ASSERT_EQ(sandbox.run("plan " + data + "--planner pytorch --out p.json").exit_code, 0);
  const RunResult result = sandbox.run(
      "schedule --plan p.json --data traces/datasets/vision_mix.csv --modalities image --iterations 1 --token-cap 1 "
      "--format json");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(json::parse(result.out, nullptr, false)["schema"], "dflop.infeasible") << result.out;
}

TEST(AskedPlans, ColocatedPlansCanBeRequested) {
  const Sandbox sandbox;
  const std::string plan =
      "plan " + kData + "--model llava-ov-llama3-8b --cluster a100-80g:1 --budget 20000 --format json ";
  const std::pair<std::string, std::string> wishes[] = {
      {"--order encoder-in-bubbles", "encoder-in-bubbles"},
      {"--layout colocated", "encoder-in-bubbles"},
      {"--order three-phase", "three-phase"},
      {"--order on-demand", "on-demand"},
  };
  for (const auto& [wish, order] : wishes) {
    const RunResult result = sandbox.run(plan + wish);
    ASSERT_EQ(result.exit_code, 0) << wish << ": " << result.err;
    const json out = json::parse(result.out);
    EXPECT_EQ(out["layout"], "colocated") << wish;
    EXPECT_EQ(out["schedule"], order) << wish;
  }
  expect_error(sandbox.run(plan + "--order encoder-in-bubbles --planner megatron"),
               {"encoder-in-bubbles", "--planner megatron"});
  expect_error(
      sandbox.run("compare " + kData +
                  "--model llava-ov-llama3-8b --cluster a100-80g:1 --pipeline-schedule encoder-in-bubbles"),
      {"encoder-in-bubbles"});
}

// The encoder of a colocated plan has a tp, recomputation and share rule of its own. The simulator runs such
// a plan; programs for other executors reject it.
TEST(AskedPlans, AnEncoderOnTheLlmsRanksHasAGridOfItsOwn) {
  const Sandbox sandbox;
  const std::string data = kData + "--model llava-ov-llama3-8b --cluster a100-80g:1 ";
  const RunResult planned =
      sandbox.run("plan " + data +
                  "--order three-phase --tp 4 --pp 2 --encoder-tp 2 --encoder-recompute full "
                  "--recompute none --share-rule count --budget 20000 --out p.json");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const json plan = json::parse(testing::read_all(sandbox.path("p.json")));
  EXPECT_EQ(plan["encoder"]["tp"], 2);
  EXPECT_EQ(plan["encoder"]["dp"], 4);  // 8 ranks / tp 2
  EXPECT_EQ(plan["recomputation"], "none");
  EXPECT_EQ(plan["encoder_recomputation"], "full");
  EXPECT_EQ(plan["share_rule"], "count");
  EXPECT_NE(planned.out.find("share rule count"), std::string::npos) << planned.out;  // as asked for
  const RunResult scheduled = sandbox.run(
      "schedule --plan p.json --data traces/datasets/vision_mix.csv --modalities image --iterations 1 --out s.json");
  ASSERT_EQ(scheduled.exit_code, 0) << scheduled.err;
  ASSERT_EQ(sandbox.run("simulate --plan p.json --schedule s.json --out t.json").exit_code, 0);
  const RunResult replayed = sandbox.run("replay --trace t.json --format json");
  ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
  const json replay = json::parse(replayed.out);
  EXPECT_EQ(replay["runs"][0]["makespan_s"], replay["runs"][1]["makespan_s"]);
  expect_error(sandbox.run("simulate --plan p.json --schedule s.json --program-out program.json"),
               {"key 'encoder.tp'", "found an encoder with tp 2 on groups of 4 ranks", "--encoder-tp 4"});
  const RunResult uniform = sandbox.run("plan " + data + "--planner megatron --encoder-recompute none");
  EXPECT_EQ(uniform.exit_code, 3);
  EXPECT_NE(uniform.err.find("uniform plans recompute the layers of encoder and LLM alike"),
            std::string::npos)
      << uniform.err;
}

TEST(AskedPlans, ASweepSaysANoteOnce) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("s.json"), R"({"schema": "dflop.sweep", "version": 1,
    "axes": {"model": ["llava-ov-llama3-8b", "llava-ov-qwen2.5-7b"], "cluster": ["a100-80g"],
             "data": ["traces/datasets/vision_mix.csv"], "modalities": ["image"], "gbs": [32], "iterations": [1],
             "planner": ["dflop"], "scheduler": ["lpt"]}})");
  const RunResult result = sandbox.run("sweep --spec s.json --out s.sqlite");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string note = "6400 records of other modalities left out";
  const std::size_t first = result.err.find(note);
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(note, first + 1), std::string::npos) << result.err;
}

}  // namespace asked_plans_test
}  // namespace dflop
