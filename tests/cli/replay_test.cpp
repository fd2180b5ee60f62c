// dflop replay, as a user runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace replay_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;
using testing::two_stages;

std::string pipeline(const std::string& schedule, int microbatches, const std::string& extra = "") {
  return two_stages(schedule, microbatches, R"(, "activation_bytes": 1048576)" + extra);
}

json run_json(const Sandbox& sandbox, const std::string& arguments) {
  const RunResult result = sandbox.run(arguments + " --format json");
  EXPECT_EQ(result.exit_code, 0) << arguments << "\n" << result.err;
  return json::parse(result.out);
}

/// Records the pipeline in t.json.
void record(const Sandbox& sandbox, const std::string& text) {
  testing::write_all(sandbox.path("p.json"), text);
  ASSERT_EQ(sandbox.run("simulate --pipeline p.json --out t.json").exit_code, 0);
}

double makespan_of_pipeline(const Sandbox& sandbox, const std::string& text) {
  testing::write_all(sandbox.path("other.json"), text);
  return run_json(sandbox, "simulate --pipeline other.json")["makespan_s"].get<double>();
}

TEST(Replay, PrintsTheRecordingItsErrorAndTimesOfGroups) {
  const Sandbox sandbox;
  record(sandbox, pipeline("1f1b", 2));
  const json out = run_json(sandbox, "replay --trace t.json");
  EXPECT_EQ(out["iterations"], 1);
  ASSERT_EQ(out["runs"].size(), 2u);
  EXPECT_EQ(out["runs"][0]["run"], "recorded");
  // As derived in two_stages().
  EXPECT_DOUBLE_EQ(out["runs"][0]["makespan_s"].get<double>(), 0.096);
  EXPECT_TRUE(out["runs"][0]["compared_with"].is_null());
  EXPECT_TRUE(out["runs"][0]["difference_s"].is_null());
  EXPECT_EQ(out["runs"][1]["run"], "replayed");
  EXPECT_DOUBLE_EQ(out["runs"][1]["makespan_s"].get<double>(), 0.096);
  EXPECT_EQ(out["runs"][1]["compared_with"], "recorded");
  EXPECT_EQ(out["runs"][1]["difference_s"], 0.0);
  EXPECT_EQ(out["runs"][1]["difference"], 0.0);
  EXPECT_EQ(out["runs"][1]["peak_memory_bytes"], 2 * 1048576);
  ASSERT_EQ(out["groups"].size(), 2u);
  for (const char* run : {"recorded", "replayed"}) {
    const json& first = out["groups"][0];
    EXPECT_DOUBLE_EQ(first[run + std::string("_busy_s")].get<double>(), 0.06);
    EXPECT_DOUBLE_EQ(first[run + std::string("_bubble_s")].get<double>(), 0.03);
    EXPECT_DOUBLE_EQ(first[run + std::string("_wait_s")].get<double>(), 0.006);
  }
  EXPECT_FALSE(out.contains("prices"));
}

// A gap without spans: the recorded run ends 4 ms after its last span.
TEST(Replay, CountsTimeThatNoSpanCoversAsItsError) {
  const Sandbox sandbox;
  record(sandbox, pipeline("1f1b", 2));
  json trace = json::parse(testing::read_result(sandbox.path("t.json")));
  trace["iterations"][0]["makespan_ns"] = 100'000'000;
  testing::write_all(sandbox.path("t.json"), trace.dump());
  const json replayed = run_json(sandbox, "replay --trace t.json")["runs"][1];
  EXPECT_NEAR(replayed["difference_s"].get<double>(), -0.004, 1e-12);
  EXPECT_NEAR(replayed["difference"].get<double>(), -0.04, 1e-12);
}

TEST(Replay, ReproducesSimulatesFileByteForByte) {
  const Sandbox sandbox;
  record(sandbox, pipeline("interleaved", 4, R"(, "chunks": 2)"));
  ASSERT_EQ(sandbox.run("replay --trace t.json --out again.json.gz --perfetto trace.json").exit_code, 0);
  ASSERT_EQ(sandbox.run("replay --trace again.json.gz --out again.json").exit_code, 0);
  EXPECT_EQ(testing::read_result(sandbox.path("again.json")), testing::read_result(sandbox.path("t.json")));
  EXPECT_TRUE(sandbox.has("trace.json"));
}

/// Returns the row of the last run.
json last_run(const Sandbox& sandbox, const std::string& options) {
  return run_json(sandbox, "replay --trace t.json " + options)["runs"].back();
}

TEST(Replay, AnotherScheduleTakesAsLongAsSimulated) {
  const Sandbox sandbox;
  record(sandbox, pipeline("1f1b", 4));
  const json gpipe = last_run(sandbox, "--pipeline-schedule gpipe");
  EXPECT_EQ(gpipe["run"], "gpipe");
  EXPECT_EQ(gpipe["compared_with"], "replayed");
  EXPECT_DOUBLE_EQ(gpipe["makespan_s"].get<double>(), makespan_of_pipeline(sandbox, pipeline("gpipe", 4)));
  EXPECT_EQ(gpipe["peak_memory_bytes"], 4 * 1048576);
  // Half of each backward of 20 ms is for the weights.
  std::string split = pipeline("zb-h1", 4, R"(, "backward_weight_s": 0.01)");
  split.replace(split.find("\"backward_s\": 0.02"), 18, "\"backward_s\": 0.01");
  EXPECT_DOUBLE_EQ(
      last_run(sandbox, "--pipeline-schedule zb-h1 --weight-share 0.5")["makespan_s"].get<double>(),
      makespan_of_pipeline(sandbox, split));
}

TEST(Replay, WhatIfsCombine) {
  const Sandbox sandbox;
  record(sandbox, pipeline("1f1b", 4));
  EXPECT_DOUBLE_EQ(last_run(sandbox, "--microbatches 7")["makespan_s"].get<double>(),
                   makespan_of_pipeline(sandbox, pipeline("1f1b", 7)));
  const json out = run_json(sandbox,
                            "replay --trace t.json --microbatches 6 --pipeline-schedule gpipe "
                            "--bandwidth-scale 0.5 --latency-scale 0.5");
  ASSERT_EQ(out["runs"].size(), 4u);
  EXPECT_EQ(out["runs"][2]["run"], "gpipe, 6 microbatches");
  EXPECT_EQ(out["runs"][3]["run"], "latency x 0.5, bandwidth x 0.5");
  EXPECT_DOUBLE_EQ(out["runs"][2]["makespan_s"].get<double>(),
                   makespan_of_pipeline(sandbox, pipeline("gpipe", 6)));
  // Messages of one size count entirely as bandwidth: 3 ms become 6 ms, as on a link without latency.
  std::string slow = pipeline("gpipe", 6);
  slow.replace(slow.find("0.002"), 5, "0.005");
  EXPECT_DOUBLE_EQ(out["runs"][3]["makespan_s"].get<double>(), makespan_of_pipeline(sandbox, slow));
}

/// Makes a plan, its schedule and the timeline of its three iterations: NAME.json, s-NAME.json, t-NAME.json.
json simulate_plan(const Sandbox& sandbox, const std::string& name, const std::string& options) {
  const std::string data = " --data traces/datasets/vision_mix.csv --iterations 3 ";
  EXPECT_EQ(sandbox
                .run("plan" + data + "--model llava-ov-llama3-8b --cluster a100-80g-vtrain:2 --gbs 64 " +
                     options + " --out " + name + ".json")
                .exit_code,
            0);
  EXPECT_EQ(
      sandbox.run("schedule --plan " + name + ".json" + data + "--scheduler lpt --out s-" + name + ".json")
          .exit_code,
      0);
  return run_json(
      sandbox, "simulate --plan " + name + ".json --schedule s-" + name + ".json --out t-" + name + ".json");
}

// A simulated recording does not differ from its cost model, so another plan is priced as by the simulator.
TEST(Replay, AnotherPlanTakesAsLongAsSimulated) {
  const Sandbox sandbox;
  const json recorded = simulate_plan(sandbox, "a", "");
  const json other = simulate_plan(sandbox, "b", "--planner megatron");
  const json out =
      run_json(sandbox, "replay --trace t-a.json --iteration all --plan b.json --schedule s-b.json");
  EXPECT_EQ(out["iterations"], 3);
  ASSERT_EQ(out["runs"].size(), 3u);
  EXPECT_DOUBLE_EQ(out["runs"][0]["makespan_s"].get<double>(), recorded["iteration_s_mean"].get<double>());
  EXPECT_DOUBLE_EQ(out["runs"][1]["makespan_s"].get<double>(), recorded["iteration_s_mean"].get<double>());
  EXPECT_EQ(out["runs"][1]["difference_most"], 0.0);
  EXPECT_NEAR(out["runs"][2]["makespan_s"].get<double>(), other["iteration_s_mean"].get<double>(), 1e-6);
  EXPECT_NEAR(out["runs"][2]["makespan_s_p95"].get<double>(), other["iteration_s_p95"].get<double>(), 1e-6);
  EXPECT_EQ(out["prices"][0]["parts"], "instructions");
  EXPECT_EQ(out["prices"][0]["recorded"], 0);
  EXPECT_GT(out["prices"][0]["scaled"], 0);
  // The recording by itself prices its own plan.
  const json same =
      run_json(sandbox, "replay --trace t-a.json --iteration 1 --plan a.json --schedule s-a.json");
  EXPECT_EQ(same["runs"][2]["difference_s"], 0.0);
  for (const json& parts : same["prices"]) {
    EXPECT_EQ(parts["by_shape"], 0);
    EXPECT_EQ(parts["scaled"], 0);
  }
}

TEST(Replay, RejectsBadUsageAndInput) {
  const Sandbox sandbox;
  record(sandbox, pipeline("1f1b", 4));
  const auto refused = [&](const std::string& options, const std::vector<std::string>& parts) {
    expect_error(sandbox.run("replay --trace t.json --out o.json " + options), parts);
  };
  expect_error(sandbox.run("replay"), {"--trace", "required"});
  expect_error(sandbox.run("replay --trace none.json"), {"none.json"});
  expect_error(sandbox.run("replay --trace p.json"), {"p.json", "dflop.timeline"});
  expect_error(sandbox.run("replay --trace t.json --out t.json"), {"'--out'", "'--trace'"});
  refused("--iteration 1", {"'--iteration'", "from 0 to 0, 'all' or 'steady'", "'1'"});
  refused("--iteration some", {"'--iteration'", "'some'"});
  refused("--plan p.json", {"'--plan'", "'--schedule'"});
  refused("--schedule p.json", {"'--schedule'", "'--plan'"});
  refused("--pipeline-schedule best", {"'--pipeline-schedule'", "zb-h1", "'best'"});
  refused("--weight-share 0.5", {"'--weight-share'", "'--pipeline-schedule'"});
  refused("--pipeline-schedule zb-h1 --weight-share 1.5", {"'--weight-share'", "1.5"});
  refused("--pipeline-schedule zb-h1", {"what-if 'zb-h1'", "'--weight-share'"});
  refused("--pipeline-schedule zb-v --weight-share 0.5", {"what-if 'zb-v'", "expected 2 for zb-v"});
  refused("--microbatches 0", {"'--microbatches'", "'0'"});
  refused("--pipeline-schedule interleaved --microbatches 3",
          {"3 microbatches'", "'chunks'", "at least 2 for interleaved"});
  refused("--latency-scale 0", {"'--latency-scale'", "'0'"});
  refused("--bandwidth-scale nan", {"'--bandwidth-scale'"});
  refused("--cluster v100", {"unknown cluster 'v100'"});
  EXPECT_FALSE(sandbox.has("o.json"));
  // Missing or partial spans.
  json trace = json::parse(testing::read_all(sandbox.path("t.json")));
  trace["iterations"][0]["spans"]["position"][3] = -1;
  testing::write_all(sandbox.path("t.json"), trace.dump());
  refused("", {"t.json", "iterations[0].spans.position[3]", "found -1"});
  for (auto& column : trace["iterations"][0]["spans"]) column = json::array();
  testing::write_all(sandbox.path("t.json"), trace.dump());
  refused("", {"t.json", "iterations[0].spans", "dflop simulate --out"});
}

// Steps in an order that no schedule has: with one stage and two microbatches, F0 F1 B1 B0.
TEST(Replay, AsksForAScheduleIfTheRecordedOrderIsUnknown) {
  const Sandbox sandbox;
  std::string text = pipeline("gpipe", 2);
  text.replace(text.find("\"stages\": 2"), 11, "\"stages\": 1");
  record(sandbox, text);
  json trace = json::parse(testing::read_all(sandbox.path("t.json")));
  trace["iterations"][0]["spans"]["microbatch"] = {0, 1, 1, 0};
  testing::write_all(sandbox.path("t.json"), trace.dump());
  expect_error(sandbox.run("replay --trace t.json --microbatches 3"),
               {"'3 microbatches'", "'--pipeline-schedule'"});
  EXPECT_EQ(sandbox.run("replay --trace t.json --microbatches 3 --pipeline-schedule 1f1b").exit_code, 0);
}

}  // namespace replay_test
}  // namespace dflop
