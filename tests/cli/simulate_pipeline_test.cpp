// dflop simulate --pipeline, as a user runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace simulate_pipeline_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;
using testing::two_stages;

const std::string kSmall = two_stages("1f1b", 2, R"(, "activation_bytes": 100)");

TEST(SimulatePipeline, PrintsMakespanAndWhereEachStagesTimeWent) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  const RunResult result = sandbox.run("simulate --pipeline p.json --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["schedule"], "1f1b");
  EXPECT_EQ(out["microbatches"], 2);
  EXPECT_DOUBLE_EQ(out["makespan_s"].get<double>(), 0.096);
  ASSERT_EQ(out["stages"].size(), 2u);
  const json& first = out["stages"][0];
  EXPECT_EQ(first["stage"], 0);
  EXPECT_DOUBLE_EQ(first["busy_s"].get<double>(), 0.06);
  EXPECT_DOUBLE_EQ(first["wait_s"].get<double>(), 0.006);   // in flight 43-46 and 73-76
  EXPECT_DOUBLE_EQ(first["bubble_s"].get<double>(), 0.03);  // idle 20-43 and 66-73
  EXPECT_DOUBLE_EQ(first["transfer_s"].get<double>(), 0.012);
  EXPECT_EQ(first["peak_bytes"], 200);
  EXPECT_EQ(out["stages"][1]["peak_bytes"], 100);
  // Both stages are idle for 36 of 96 ms.
  EXPECT_DOUBLE_EQ(out["idle_fraction"].get<double>(), 36.0 / 96);
}

TEST(SimulatePipeline, PrintsTablesAndCsv) {
  const Sandbox sandbox;
  const RunResult table = sandbox.run("simulate --pipeline traces/pipelines/zb-h1.json");
  EXPECT_EQ(table.exit_code, 0) << table.err;
  // F = B = W = 10 ms, 4 stages, 8 microbatches: (3 x 8 + 4 - 1) x 10 ms.
  EXPECT_NE(table.out.find("0.270000"), std::string::npos) << table.out;
  const RunResult csv = sandbox.run("simulate --pipeline traces/pipelines/1f1b.json --format csv");
  EXPECT_EQ(csv.exit_code, 0) << csv.err;
  EXPECT_EQ(csv.out.substr(0, csv.out.find('\n')), "stage,busy_s,bubble_s,wait_s,transfer_s,peak_bytes");
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 5);
}

TEST(SimulatePipeline, WritesTimelineAndTrace) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  const RunResult result = sandbox.run("simulate --pipeline p.json --out t.json --perfetto trace.json.gz");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json timeline = json::parse(testing::read_all(sandbox.path("t.json")));
  EXPECT_EQ(timeline["schema"], "dflop.timeline");
  ASSERT_EQ(timeline["iterations"].size(), 1u);
  EXPECT_EQ(timeline["iterations"][0]["makespan_ns"], 96'000'000);
  EXPECT_EQ(timeline["iterations"][0]["spans"]["op"].size(), 16u);  // 8 compute, 4 sends, 4 receives
  EXPECT_TRUE(sandbox.has("trace.json.gz"));
}

TEST(SimulatePipeline, SaysThatZbH2OfFewMicrobatchesIsZbH1) {
  const Sandbox sandbox;
  const auto run = [&](int microbatches) {
    testing::write_all(
        sandbox.path("p.json"),
        fmt::format(R"({{"schema": "dflop.pipeline", "version": 1, "schedule": "zb-h2", "stages": 4,
  "microbatches": {}, "forward_s": 1, "backward_s": 1, "backward_weight_s": 1}})",
                    microbatches));
    return sandbox.run("simulate --pipeline p.json").err;
  };
  EXPECT_NE(run(6).find("zb-h2 runs as zb-h1 here: 6 microbatches are too few for it on 4 pipeline ranks"),
            std::string::npos);
  EXPECT_EQ(run(7).find("runs as"), std::string::npos);
}

TEST(SimulatePipeline, RunsTheOrderThatItWrites) {
  const Sandbox sandbox;
  const std::string run = "simulate --pipeline traces/pipelines/zb-h1.json --format csv";
  const RunResult built_in = sandbox.run(run + " --order-out o.json");
  ASSERT_EQ(built_in.exit_code, 0) << built_in.err;
  EXPECT_EQ(sandbox.run(run + " --order o.json").out, built_in.out);
  // Whole backwards of 20 ms in 1F1B order: (8 + 4 - 1) x 30 ms.
  const RunResult own = sandbox.run(
      "simulate --pipeline traces/pipelines/zb-h1.json --order traces/pipelines/1f1b-order.json --format json");
  ASSERT_EQ(own.exit_code, 0) << own.err;
  EXPECT_DOUBLE_EQ(json::parse(own.out)["makespan_s"].get<double>(), 0.33);
  EXPECT_EQ(json::parse(own.out)["schedule"], "traces/pipelines/1f1b-order.json");
}

/// An encoder of 27 layers on both LLM ranks, which have 32 LLM layers.
constexpr const char* kColocated = R"({"schema": "dflop.plan", "version": 1, "planner": "hand",
  "model": "llava-ov-llama3-8b", "cluster": "a100-80g-vtrain:1", "gbs": 16, "layout": "colocated",
  "encoder": {"tp": 4, "pp": 1, "dp": 2, "layers": [27]}, "llm": {"tp": 4, "pp": 2, "dp": 1, "layers": [16, 16]},
  "microbatches": 8, "schedule": "encoder-in-bubbles", "recomputation": "full", "zero1": true,
  "sequence_parallel": true})";

TEST(SimulatePlan, RunsTheUsersPlanAndReplaysItsOrder) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kColocated);
  const RunResult scheduled = sandbox.run(
      "schedule --plan p.json --data traces/datasets/vision_mix.csv --iterations 1 --scheduler lpt --out s.json");
  ASSERT_EQ(scheduled.exit_code, 0) << scheduled.err;
  const std::string run = "simulate --plan p.json --schedule s.json --format json";
  const RunResult built_in = sandbox.run(run + " --order-out o.json");
  ASSERT_EQ(built_in.exit_code, 0) << built_in.err;
  const json order = json::parse(testing::read_all(sandbox.path("o.json")));
  ASSERT_EQ(order["ranks"].size(), 2u);
  EXPECT_EQ(order["ranks"][0][0], "F0.e");
  EXPECT_EQ(order["ranks"][1][0], "F1.e");
  EXPECT_EQ(order["ranks"][0].size(), 2u * (8 + 4));
  EXPECT_EQ(sandbox.run(run + " --order o.json").out, built_in.out);
}

TEST(SimulatePipeline, RejectsBadUsageAndInput) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("p.json"), kSmall);
  expect_error(sandbox.run("simulate"), {"'--plan'", "'--pipeline'"});
  expect_error(sandbox.run("simulate --plan p.json"), {"'--schedule'", "'--pipeline'"});
  expect_error(sandbox.run("simulate --pipeline p.json --plan p.json"), {"'--pipeline'", "'--plan'"});
  expect_error(sandbox.run("simulate --pipeline p.json --schedule p.json"),
               {"cannot be combined with '--schedule'"});
  expect_error(sandbox.run("simulate --pipeline p.json --out p.json"), {"'--out'", "'--pipeline'"});
  expect_error(sandbox.run("simulate --pipeline p.json --out t.json --perfetto t.json"), {"t.json"});
  expect_error(sandbox.run("simulate --pipeline p.json --leaf 1:2"), {"'--leaf'", "'--pipeline'"});
  expect_error(sandbox.run("simulate --pipeline p.json --collectives ring"), {"'--collectives'"});
  expect_error(sandbox.run("simulate --pipeline p.json --stage-gpu 0=h100"), {"'--stage-gpu'"});
  expect_error(sandbox.run("simulate --pipeline p.json --program-out o.json"),
               {"'--program-out'", "only to plans"});
  EXPECT_FALSE(sandbox.has("o.json"));
  expect_error(sandbox.run("simulate --pipeline missing.json"), {"missing.json"});
  expect_error(sandbox.run("simulate --pipeline p.json --order traces/pipelines/1f1b-order.json"),
               {"1f1b-order.json", "'ranks'", "expected 2 lists", "found 4"});
  testing::write_all(sandbox.path("split.json"), R"({"schema": "dflop.order", "version": 1,
      "ranks": [["F0", "F1", "I0", "W0", "B1"], ["F0", "B0", "F1", "B1"]]})");
  expect_error(sandbox.run("simulate --pipeline p.json --order split.json"), {"p.json", "backward_weight_s"});
  std::string text = kSmall;
  text.replace(text.find("1f1b"), 4, "interleaved\", \"chunks\": 2, \"x\": \"");
  testing::write_all(sandbox.path("bad.json"), text);
  expect_error(sandbox.run("simulate --pipeline bad.json --out t.json"), {"bad.json", "'x'", "unknown key"});
  EXPECT_FALSE(sandbox.has("t.json"));
  testing::write_all(sandbox.path("one.json"), two_stages("interleaved", 2, R"(, "chunks": 1)"));
  expect_error(sandbox.run("simulate --pipeline one.json"),
               {"one.json", "'chunks'", "expected at least 2 for interleaved, found 1"});
}

}  // namespace simulate_pipeline_test
}  // namespace dflop
