// What-if options of `dflop simulate`, as a user types them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace what_if_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

/// 1F1B, 2 stages, 2 microbatches: F0 0-10, F1 10-20, B0 46-66, B1 76-96 on stage 0, F0 13-23, B0 23-43, F1
/// 43-53, B1 53-73 on stage 1; 96 ms. Messages take 1 + 2 ms.
constexpr const char* kSmall = R"({"schema": "dflop.pipeline", "version": 1, "schedule": "1f1b", "stages": 2,
  "microbatches": 2, "forward_s": 0.01, "backward_s": 0.02, "p2p_bytes": 2000000,
  "link": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e9}})";

class WhatIfCommand : public ::testing::Test {
 protected:
  WhatIfCommand() { testing::write_all(sandbox_.path("p.json"), kSmall); }

  RunResult run(const std::string& options) const {
    return sandbox_.run("simulate --pipeline p.json " + options);
  }

  double makespan(const std::string& options) const {
    const RunResult result = run("--format json " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["makespan_s"];
  }

  void expect_refused(const std::string& options, const std::string& text) const {
    const RunResult result = run(options);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }

  Sandbox sandbox_;
};

TEST_F(WhatIfCommand, ChangesTheRun) {
  EXPECT_DOUBLE_EQ(makespan(""), 0.096);
  EXPECT_DOUBLE_EQ(makespan("--network none"), 0.090);          // two messages of 3 ms on the longest chain
  EXPECT_DOUBLE_EQ(makespan("--slow-link rank=1:0.5"), 0.102);  // both take 6 ms
  EXPECT_DOUBLE_EQ(makespan("--slow rank=1:2"), 0.156);         // 60 ms more on stage 1's chain
  EXPECT_DOUBLE_EQ(makespan("--slow stage=1:2"), 0.156);
  EXPECT_DOUBLE_EQ(makespan("--pause rank=1:0.03:0.007"), 0.103);
  EXPECT_DOUBLE_EQ(makespan("--pause rank=1:0.03:0.007 --pause rank=1:0.05:0.001"), 0.104);
}

// Activations of both microbatches on one bus of 0.2 GB/s: 2 MB each take 10 ms alone, with a latency of 1
// ms. F0's from 11 to 21 alone; F1's from 21. F0 21-31, B0 31-51, F1 51-61, B1 61-81; gradients: 51-62 and
// 81-92, each alone on the bus; B0 62-82, B1 92-112.
TEST_F(WhatIfCommand, SharesABus) {
  testing::write_all(sandbox_.path("p.json"),
                     R"({"schema": "dflop.pipeline", "version": 1, "schedule": "1f1b", "stages": 2,
  "microbatches": 2, "forward_s": 0.01, "backward_s": 0.02, "p2p_bytes": 2000000,
  "shared_link": {"latency_s": 0.001, "bandwidth_bytes_per_s": 2e8}})");
  EXPECT_DOUBLE_EQ(makespan(""), 0.112);
  EXPECT_DOUBLE_EQ(makespan("--network none"), 0.090);
}

TEST_F(WhatIfCommand, NamesStalledGroups) {
  const RunResult result = run("--fail rank=1:0.03 --format json");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("2 of 2 stages stall"), std::string::npos) << result.err;
  const json out = testing::rows_of(result.out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0]["reason"], "waits for rank 1");
  EXPECT_DOUBLE_EQ(out[0]["since_s"].get<double>(), 0.02);
  EXPECT_EQ(out[1]["reason"], "failed");
  EXPECT_DOUBLE_EQ(out[1]["since_s"].get<double>(), 0.03);
}

/// The run ends after 96 ms, before 5 s, but a failure at 30 ms stops it. Half the time is not a slowdown.
TEST_F(WhatIfCommand, NotesConditionsWithoutTheNamedEffect) {
  const RunResult late = run("--fail rank=1:5");
  EXPECT_EQ(late.exit_code, 0);
  EXPECT_NE(late.err.find("'--fail' changes nothing: no rank had work left"), std::string::npos) << late.err;
  EXPECT_NE(late.err.find("the longest iteration took 0.096 s"), std::string::npos) << late.err;
  EXPECT_EQ(run("--fail rank=1:0.03").err.find("changes nothing"), std::string::npos);
  EXPECT_NE(run("--slow rank=0:0.5").err.find("'--slow' with a factor of 0.5 makes compute faster"),
            std::string::npos);
  EXPECT_EQ(run("--slow rank=0:2").err, "");
}

TEST_F(WhatIfCommand, RepeatsWithJitterTheSameForASeed) {
  const std::string options = "--jitter 0.1 --repeat 50 --format json";
  const RunResult first = run(options);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(run(options).out, first.out);
  EXPECT_NE(run(options + " --seed 2").out, first.out);
  const json spread = json::parse(first.out)["distribution"];
  EXPECT_EQ(spread["runs"], 50);
  EXPECT_LT(spread["least_s"], spread["p50_s"]);
  EXPECT_LT(spread["p50_s"], spread["p95_s"]);
  EXPECT_LE(spread["p95_s"], spread["p99_s"]);
  EXPECT_LE(spread["p99_s"], spread["most_s"]);
}

// Without jitter rank 1 is done at 73 ms, so a failure at 75 ms stops exactly the runs that jitter makes
// slow.
TEST_F(WhatIfCommand, CountsStalledRunsSeparately) {
  const RunResult result = run("--jitter 0.1 --fail rank=1:0.075 --repeat 50 --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json spread = json::parse(result.out)["distribution"];
  EXPECT_GT(spread["stalled"], 0);
  EXPECT_GT(spread["runs"], 0);
  EXPECT_EQ(spread["runs"].get<int>() + spread["stalled"].get<int>(), 50);
  const json all = json::parse(run("--jitter 0.1 --repeat 50 --format json").out)["distribution"];
  EXPECT_EQ(spread["least_s"], all["least_s"]);
  EXPECT_LT(spread["most_s"], all["most_s"]);
}

TEST_F(WhatIfCommand, RejectsConditionsThatItCannotRead) {
  expect_refused("--slow rank=2:2", "'--slow': expected a rank from 0 to 1, found 'rank=2'");
  expect_refused("--slow stage=9:2",
                 "'--slow': expected one of the stages 0 (stage 0), 1 (stage 1), found 'stage=9'");
  expect_refused("--slow 1:2", "'--slow': expected rank=R:FACTOR or stage=S:FACTOR");
  expect_refused("--slow rank=1:0", "found 'rank=1:0'");
  expect_refused("--slow rank=1:nan", "found 'rank=1:nan'");
  expect_refused("--slow rank=1:2x", "found 'rank=1:2x'");
  expect_refused("--slow-link rank=1:2", "'--slow-link'");
  expect_refused("--pause rank=1:2", "'--pause': expected rank=R:START:DURATION");
  expect_refused("--fail rank=-1:2", "'--fail': expected rank=R:SECONDS");
  expect_refused("--fail rank=7:2", "'--fail': expected a rank from 0 to 1");
  expect_refused("--network wifi",
                 "'--network': expected none, latency-bandwidth or contention, found 'wifi'");
  expect_refused("--network contention", "needs key 'shared_link' in p.json");
  expect_refused("--jitter -1", "'--jitter'");
  expect_refused("--repeat 0", "'--repeat'");
}

// Each number is allowed, but together they exceed 64 bits of nanoseconds, 292 years.
TEST_F(WhatIfCommand, RejectsConditionsThatAreTooMuchTogether) {
  expect_refused("--slow rank=0:1e6 --slow stage=0:1e6",
                 "'--slow': expected factors of a rank whose "
                 "product is from 1e-06 to 1000000");
  expect_refused("--slow-link rank=0:1e-6 --slow-link rank=0:0.1", "'--slow-link': expected factors");
  std::string pauses;
  for (int i = 0; i < 1001; ++i) pauses += "--pause rank=0:0:1e6 ";
  expect_refused(pauses, "conditions: expected a run of at most 1e+09 s, found durations of 1.001e+09 s");
  const RunResult allowed = sandbox_.run("simulate --pipeline p.json --slow rank=0:1e3 --slow rank=0:1e3");
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
}

// 200,000 s of forwards, each 1e6 times as long: 2e11 s.
TEST_F(WhatIfCommand, RejectsOperationsThatAreTooLong) {
  testing::write_all(sandbox_.path("p.json"), R"({"schema": "dflop.pipeline", "version": 1,
      "schedule": "gpipe", "stages": 1, "microbatches": 2, "forward_s": 100000, "backward_s": 1})");
  expect_refused("--slow rank=0:1e6", "conditions: expected operations of at most 1e+09 s");
  expect_refused("--slow rank=0:9e3", "conditions: expected a run of at most 1e+09 s");  // total 1.8e9
}

TEST_F(WhatIfCommand, ReachesPlans) {
  const Sandbox& box = sandbox_;
  ASSERT_EQ(
      box.run(
             "plan --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g-vtrain:2 "
             "--gbs 64 --out plan.json")
          .exit_code,
      0);
  ASSERT_EQ(
      box.run("schedule --plan plan.json --data traces/datasets/vision_mix.csv --iterations 2 --out s.json")
          .exit_code,
      0);
  const auto mean = [&](const std::string& options) {
    const RunResult result = box.run("simulate --plan plan.json --schedule s.json --format json " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["iteration_s_mean"].get<double>();
  };
  const double usual = mean("");
  EXPECT_EQ(mean("--network latency-bandwidth"), usual);
  EXPECT_LT(mean("--network none"), usual);
  EXPECT_GT(mean("--slow rank=0:1.5"), usual);
  EXPECT_GT(mean("--network contention --leaf 1:100"), mean("--network contention"));
  EXPECT_GT(mean("--collectives ring"), mean("--collectives fastest"));
  const RunResult repeated =
      box.run("simulate --plan plan.json --schedule s.json --format json --jitter 0.05 --repeat 10");
  // Two iterations ten times: the top figures are the mean of all runs, and rates follow from it.
  const json all = json::parse(repeated.out);
  EXPECT_EQ(all["distribution"]["runs"], 20);
  EXPECT_DOUBLE_EQ(all["iteration_s_mean"].get<double>(), all["distribution"]["mean_s"].get<double>());
  EXPECT_EQ(all["iteration_s_p95"], all["distribution"]["p95_s"]);
  const json plan = json::parse(testing::read_all(box.path("plan.json")));
  EXPECT_NEAR(all["samples_per_s"].get<double>() * all["iteration_s_mean"].get<double>(),
              plan["gbs"].get<double>(), 1e-9);
  const RunResult failed = box.run("simulate --plan plan.json --schedule s.json --fail rank=0:0.5");
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_NE(failed.err.find("iteration 0 does not finish"), std::string::npos) << failed.err;
  EXPECT_EQ(mean("--slow rank=0:1.5 --slow rank=0:2"), mean("--slow rank=0:3"));
  EXPECT_LT(mean("--stage-gpu 0=h100 --stage-gpu 1=h100"), mean("--stage-gpu 1=h100"));
  EXPECT_LT(mean("--stage-gpu 1=h100"), usual);
  EXPECT_EQ(mean("--stage-gpu 0=a100-80g-vtrain"), usual);
  // All stages on H100, whose peak is 989.4 / 312 of an A100's: the same work in another time.
  const auto mfu = [&](const std::string& options) {
    const RunResult result = box.run("simulate --plan plan.json --schedule s.json --format json " + options);
    return json::parse(result.out)["mfu"].get<double>();
  };
  const double all_h100 = mean("--stage-gpu 0=h100 --stage-gpu 1=h100");
  EXPECT_NEAR(mfu("--stage-gpu 0=h100 --stage-gpu 1=h100"), mfu("") * usual / all_h100 * 312 / 989.4, 1e-9);
  const RunResult no_stage = box.run("simulate --plan plan.json --schedule s.json --stage-gpu 9=h100");
  EXPECT_EQ(no_stage.exit_code, 2);
  EXPECT_NE(no_stage.err.find("'--stage-gpu': expected a stage from 0 to 1, found '9=h100'"),
            std::string::npos)
      << no_stage.err;
  EXPECT_EQ(box.run("simulate --plan plan.json --schedule s.json --stage-gpu h100").exit_code, 2);
  EXPECT_EQ(box.run("simulate --plan plan.json --schedule s.json --leaf 2").exit_code, 2);
  EXPECT_EQ(box.run("simulate --plan plan.json --schedule s.json --collectives star").exit_code, 2);
}

/// Writes four replicas of tp 4 on two nodes, two on each.
void write_two_nodes(const Sandbox& sandbox) {
  const std::string data = "--data traces/datasets/vision_mix.csv --gbs 16 --iterations 1 ";
  ASSERT_EQ(
      sandbox
          .run("plan " + data + "--model llava-ov-llama3-8b --cluster a100-80g-vtrain:2 --layout uniform " +
               "--budget 1 --tp 4 --pp 1 --dp 4 --out p.json")
          .exit_code,
      0);
  ASSERT_EQ(sandbox.run("schedule --plan p.json --scheduler lpt " + data + "--out s.json").exit_code, 0);
}

json explained(const Sandbox& sandbox, const std::string& options) {
  const RunResult result =
      sandbox.run("simulate --plan p.json --schedule s.json --explain --format json " + options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out)["explain"];
}

// tp 4, dp 4 on nodes of 8: two groups per node reduce, so their rings share node_ring_bandwidth, 12.5e9 B/s
// of the preset. A higher inter_node bandwidth then changes nothing, twice the ring bandwidth halves the ring
// time, and without the ring limit inter_node is the bound.
TEST(LinkBandwidth, NamesTheLimitOfAReduction) {
  const Sandbox sandbox;
  write_two_nodes(sandbox);
  const json plain = explained(sandbox, "")["reductions"][0];
  EXPECT_EQ(plain["nodes"], 2);
  EXPECT_EQ(plain["bound_by"], "node_ring_bandwidth");
  const json faster = explained(sandbox, "--inter-node-bandwidth x2");
  EXPECT_EQ(faster["reductions"][0], plain);
  const std::string why = faster["idle_bandwidths"][0];
  EXPECT_NE(why.find("shortens no reduction"), std::string::npos) << why;
  EXPECT_NE(why.find("node_ring_bandwidth, 12.5 GB/s"), std::string::npos) << why;
  const json rings = explained(sandbox, "--node-ring-bandwidth 200Gb/s")["reductions"][0];
  EXPECT_DOUBLE_EQ(rings["node_ring_s"].get<double>(), plain["node_ring_s"].get<double>() / 2);
  EXPECT_EQ(explained(sandbox, "--node-ring-bandwidth x2")["reductions"][0], rings);
  EXPECT_EQ(explained(sandbox, "--node-ring-bandwidth 25GB/s")["reductions"][0], rings);
}

TEST(LinkBandwidth, IsRejectedWithoutAUnit) {
  const Sandbox sandbox;
  for (const char* value : {"400", "x0", "400Gb", "1e7GB/s", "-1GB/s", "x2GB/s"}) {
    testing::expect_error(sandbox.run("plan --data d.csv --model tiny-vlm --cluster a100-80g --gbs 8 "
                                      "--inter-node-bandwidth " +
                                      std::string(value)),
                          {"'--inter-node-bandwidth'", "400Gb/s", value});
  }
}

}  // namespace what_if_test
}  // namespace dflop
