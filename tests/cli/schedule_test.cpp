// dflop schedule: objectives, caps and limits of whole batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"

namespace dflop {
namespace schedule_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

/// A plan on 8 GPUs with four dp ranks and three microbatches.
const char* const kPlan = R"({"schema": "dflop.plan", "version": 1, "planner": "pytorch",
  "model": "llava-ov-llama3-8b", "cluster": "a100-80g-vtrain:1", "gbs": 32, "layout": "uniform",
  "encoder": {"tp": 2, "pp": 1, "dp": 4, "layers": [27]}, "llm": {"tp": 2, "pp": 1, "dp": 4, "layers": [32]},
  "microbatches": 3, "schedule": "1f1b", "recomputation": "none", "zero1": true, "sequence_parallel": true})";

struct ScheduleTest : ::testing::Test {
  Sandbox sandbox;

  ScheduleTest() { testing::write_all(sandbox.path("p.json"), kPlan); }

  RunResult schedule(const std::string& options) {
    return sandbox.run(
        "schedule --plan p.json --data traces/datasets/vision_mix.csv --modalities image,multi_image "
        "--format json --out s.json " +
        options);
  }
  json iterations(const std::string& options) {
    const RunResult result = schedule(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return testing::rows_of(result.out);
  }
  RunResult simulate() { return sandbox.run("simulate --plan p.json --schedule s.json --format json"); }
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(ScheduleTest, MakespanEqualsASimulation) {
  const json rows =
      iterations("--scheduler makespan --objective makespan --iterations 2 --steps 200 --respect-memory");
  const RunResult run = simulate();
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json times = json::parse(run.out)["iterations_s"];
  ASSERT_EQ(times.size(), 2u);
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(rows[k]["objective"], "makespan");
    EXPECT_EQ(rows[k]["c_max_s"], times[k]);
    EXPECT_LE(rows[k]["bound_s"], rows[k]["c_max_s"]);
    EXPECT_GT(rows[k]["bound_s"], 0.5 * rows[k]["c_max_s"].get<double>());
  }
}

TEST_F(ScheduleTest, MinimizesThePlansObjectiveUnlessAnotherIsRequested) {
  const std::string options = "--scheduler local-search --iterations 1 ";
  const std::string plan = kPlan;
  EXPECT_EQ(iterations(options)[0]["objective"], "bins") << "a plan of before names none";
  testing::write_all(sandbox.path("p.json"),
                     plan.substr(0, plan.rfind('}')) + R"(, "objective": "makespan"})");
  const RunResult result = schedule(options);
  EXPECT_NE(result.err.find("local-search balances bins; unlike auto, it has no search for the makespan"),
            std::string::npos)
      << result.err;
  const json own = testing::rows_of(result.out);
  EXPECT_EQ(own[0]["objective"], "makespan");
  EXPECT_EQ(own[0]["c_max_s"], json::parse(simulate().out)["iterations_s"][0]);
  EXPECT_NE(own[0]["status"], "optimal");
  const RunResult other = schedule(options + "--objective bins");
  EXPECT_EQ(testing::rows_of(other.out)[0]["objective"], "bins");
  EXPECT_NE(other.err.find("minimize 'bins', but the plan was made for 'makespan'"), std::string::npos)
      << other.err;
  EXPECT_EQ(schedule(options).err.find("the plan was made for"), std::string::npos);
}

// ilp cannot search for the makespan and says so.
TEST_F(ScheduleTest, AutoMinimizesTheMakespanByDefault) {
  const std::string options = "--iterations 1 ";
  const auto balances = [&](const std::string& more) {
    return schedule(options + more).err.find("ilp balances bins") != std::string::npos;
  };
  EXPECT_FALSE(balances("--objective makespan"));
  EXPECT_TRUE(balances("--objective makespan --scheduler ilp"));
  EXPECT_TRUE(balances("--objective makespan --node-budget 10"));
  EXPECT_TRUE(balances("--objective makespan --bin-order solver"));
  const std::string plan = kPlan;
  testing::write_all(sandbox.path("p.json"),
                     plan.substr(0, plan.rfind('}')) + R"(, "objective": "makespan"})");
  EXPECT_FALSE(balances(""));
  EXPECT_EQ(iterations(options), iterations(options + "--scheduler auto"));
}

TEST_F(ScheduleTest, BinOrderIsTheSolversOrGroupsLikeBins) {
  const auto bins = [&](const std::string& options) {
    iterations("--iterations 1 " + options);
    return json::parse(testing::read_all(sandbox.path("s.json")))["iterations"][0]["bins"];
  };
  EXPECT_EQ(bins("--scheduler lpt"), bins("--scheduler lpt --bin-order alike"));
  EXPECT_NE(bins("--scheduler lpt"), bins("--scheduler lpt --bin-order solver"));
  EXPECT_EQ(bins("--scheduler random"), bins("--scheduler random --bin-order solver"));
  EXPECT_NE(bins("--scheduler random"), bins("--scheduler random --bin-order alike"));
  testing::expect_error(schedule("--bin-order sorted"), {"--bin-order", "alike", "solver", "'sorted'"});
}

TEST_F(ScheduleTest, SamplesAndTheirRecordsGiveTheSameSchedule) {
  ASSERT_EQ(
      sandbox
          .run(
              "data --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --samples-out samples.json")
          .exit_code,
      0);
  const RunResult result = sandbox.run(
      "schedule --plan p.json --data samples.json --modalities image,multi_image --scheduler lpt --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(testing::rows_of(result.out), iterations("--scheduler lpt"));
  testing::expect_error(sandbox.run("schedule --plan p.json --data samples.json --assume-text 9"),
                        {"'--assume-text'", "samples.json has samples"});
  testing::expect_error(sandbox.run("data --data samples.json --model llava-ov-llama3-8b --max-tokens 9"),
                        {"'--max-tokens'", "samples.json has samples"});
}

TEST_F(ScheduleTest, StepsLimitASearch) {
  const std::string options = "--scheduler makespan --iterations 1 --steps ";
  const json few = iterations(options + "1");
  const std::string file = testing::read_all(sandbox.path("s.json"));
  EXPECT_EQ(few, iterations(options + "1"));
  EXPECT_EQ(testing::read_all(sandbox.path("s.json")), file);
  EXPECT_LT(iterations(options + "2000")[0]["c_max_s"], few[0]["c_max_s"]);
  testing::expect_error(schedule(options + "1 --time-limit 1"), {"--time-limit", "--steps"});
}

TEST_F(ScheduleTest, TokenCapIsObeyedOrTheSampleIsNamed) {
  constexpr std::int64_t kCap = 15'500;
  const std::string options = "--scheduler lpt --iterations 3 --token-cap ";
  iterations(options + std::to_string(kCap));
  const json file = json::parse(testing::read_all(sandbox.path("s.json")));
  std::int64_t most = 0;
  std::int64_t largest = 0;
  for (const json& iteration : file["iterations"]) {
    std::vector<std::int64_t> tokens(12, 0);
    for (std::size_t i = 0; i < iteration["bins"].size(); ++i) {
      const json& sample = file["samples"][iteration["samples"][i].get<std::size_t>()];
      const auto of_sample = sample["llm_tokens"].get<std::int64_t>();
      largest = std::max(largest, of_sample);
      most = std::max(most, tokens.at(iteration["bins"][i].get<std::size_t>()) += of_sample);
    }
  }
  EXPECT_LE(most, kCap);
  const RunResult below = schedule(options + std::to_string(largest - 1));
  EXPECT_EQ(below.exit_code, 3);
  EXPECT_NE(below.err.find("infeasible: iteration"), std::string::npos) << below.err;
  EXPECT_NE(below.err.find("has " + std::to_string(largest) + " LLM tokens, but the cap is " +
                           std::to_string(largest - 1)),
            std::string::npos)
      << below.err;
  EXPECT_EQ(json::parse(below.out, nullptr, false)["schema"], "dflop.infeasible") << below.out;
}

TEST_F(ScheduleTest, RespectMemoryKeepsWithinIt) {
  const std::string options = "--scheduler random --iterations 2 ";
  iterations(options);
  EXPECT_EQ(simulate().exit_code, 3) << "without it these batches do not fit";
  iterations(options + "--respect-memory");
  EXPECT_EQ(simulate().exit_code, 0);
}

// The two stages of a rank hold their microbatches at different times. A single cap only approximates this.
TEST_F(ScheduleTest, RespectMemoryHoldsForRanksOfSeveralStages) {
  testing::write_all(sandbox.path("p.json"), R"({"schema": "dflop.plan", "version": 1, "planner": "search",
    "model": "llava-ov-llama3-8b", "cluster": "a100-80g:4", "gbs": 512, "layout": "uniform",
    "encoder": {"tp": 2, "pp": 4, "dp": 4, "layers": [8, 8, 8, 3, 0, 0, 0, 0]},
    "llm": {"tp": 2, "pp": 4, "dp": 4, "layers": [0, 0, 0, 4, 7, 7, 7, 7]},
    "microbatches": 16, "schedule": "zb-v", "chunks": 2, "recomputation": "full", "zero1": true,
    "sequence_parallel": true})");
  const std::string run =
      "--plan p.json --data traces/datasets/vision_mix.csv --iterations 1 --scheduler lpt --out s.json";
  ASSERT_EQ(sandbox.run("schedule " + run).exit_code, 0);
  EXPECT_EQ(simulate().exit_code, 3) << "without it this batch does not fit";
  const RunResult result = sandbox.run("schedule " + run + " --respect-memory");
  EXPECT_EQ(result.exit_code, 3) << "with it that is said before";
  for (const char* part : {"the microbatches of lpt need ", " GiB on rank ", ", 76.0 GiB are usable"})
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

TEST_F(ScheduleTest, ReportsEachReasonOnceWithItsFirstIteration) {
  // A tight cap: in several of these iterations, adding samples one after another leaves some samples without
  // a bin.
  const RunResult result =
      schedule("--scheduler sequential --gbs 48 --iterations 6 --seed 8 --token-cap 15500");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = testing::rows_of(result.out);
  int fallbacks = 0;
  int first = -1;
  for (int k = 0; k < 6; ++k) {
    if (rows[k]["status"] != "fallback") continue;
    if (fallbacks++ == 0) first = k;
  }
  ASSERT_GT(fallbacks, 1);
  EXPECT_EQ(count(result.err, "fallback: iteration "), 1u) << result.err;
  EXPECT_NE(result.err.find("fallback: iteration " + std::to_string(first) + ": sequential breaks a cap"),
            std::string::npos)
      << result.err;
}

}  // namespace schedule_test
}  // namespace dflop
