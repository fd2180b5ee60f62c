// Conditions and user-defined orders in `dflop replay`, as a user types them.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/presets/presets.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace replay_what_if_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;
using testing::two_stages;

class ReplayWhatIf : public ::testing::Test {
 protected:
  /// Records the pipeline in t.json and its order in o.json.
  void record(const std::string& text) const {
    testing::write_all(sandbox_.path("p.json"), text);
    const RunResult result = sandbox_.run("simulate --pipeline p.json --out t.json --order-out o.json");
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  RunResult replay(const std::string& options) const {
    return sandbox_.run("replay --trace t.json " + options);
  }

  json run_json(const std::string& arguments) const {
    const RunResult result = sandbox_.run(arguments + " --format json");
    EXPECT_EQ(result.exit_code, 0) << arguments << "\n" << result.err;
    return json::parse(result.out);
  }

  json last_run(const std::string& options) const {
    return run_json("replay --trace t.json " + options)["runs"].back();
  }
  double makespan(const std::string& options) const { return last_run(options)["makespan_s"]; }

  /// Simulates another pipeline, writes its order to o.json and returns its makespan.
  double simulated(const std::string& text, const std::string& options = "") const {
    testing::write_all(sandbox_.path("other.json"), text);
    return run_json("simulate --pipeline other.json --order-out o.json " + options)["makespan_s"];
  }

  /// Writes slow.json: nodes of `gpus_per_node` GPUs with links of 50 MB/s and no latency between the GPUs.
  void write_cluster(int gpus_per_node) const {
    const auto& all = presets();
    const auto preset =
        std::find_if(all.begin(), all.end(), [](const Preset& p) { return p.name == "a100-80g-vtrain"; });
    json cluster = json::parse(preset->json);
    cluster["gpus_per_node"] = gpus_per_node;
    cluster["intra_node"] = {{"latency_s", 0}, {"bandwidth_bytes_per_s", 5e7}};
    cluster["software"]["message_overhead_s"] = 0;
    testing::write_all(sandbox_.path("slow.json"), cluster.dump());
  }

  void expect_refused(const std::string& options, const std::vector<std::string>& parts) const {
    const RunResult result = replay(options);
    EXPECT_EQ(result.exit_code, 2) << options;
    EXPECT_EQ(result.out, "");
    for (const std::string& part : parts)
      EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }

  Sandbox sandbox_;
};

TEST_F(ReplayWhatIf, ConditionsAreTheLastRow) {
  record(two_stages("1f1b", 2));
  EXPECT_DOUBLE_EQ(makespan("--network none"), 0.090);  // two messages of 3 ms on the longest chain
  EXPECT_DOUBLE_EQ(makespan("--network latency-bandwidth"), 0.096);
  EXPECT_DOUBLE_EQ(makespan("--slow-link rank=1:0.5"), 0.102);  // both take 6 ms
  EXPECT_DOUBLE_EQ(makespan("--slow rank=1:2"), 0.156);         // 60 ms more on stage 1's chain
  EXPECT_DOUBLE_EQ(makespan("--slow stage=1:2"), 0.156);
  EXPECT_DOUBLE_EQ(makespan("--pause rank=1:0.03:0.007"), 0.103);
  const json out = run_json("replay --trace t.json --slow rank=1:2 --jitter 0 --slow-link stage=0:0.5");
  ASSERT_EQ(out["runs"].size(), 3u);
  const json& last = out["runs"][2];
  EXPECT_EQ(last["run"], "slow rank=1:2, slow-link stage=0:0.5");
  EXPECT_EQ(last["compared_with"], "replayed");
  EXPECT_DOUBLE_EQ(last["makespan_s"].get<double>(), 0.162);
  EXPECT_NEAR(last["difference_s"].get<double>(), 0.066, 1e-12);
  EXPECT_FALSE(out.contains("distribution"));
  EXPECT_EQ(last_run("--slow rank=0:2 --slow rank=1:3 --network none --jitter 0.25")["run"],
            "network none, slow rank=0:2, slow rank=1:3, jitter 0.25");
}

// On one core, stage 0 runs F0 0-10 and F1 10-20, as the message of F0 arrives at 13; then stage 1 F0 20-30,
// B0 30-50 and F1 50-60; stage 0, which asks at 53, B0 60-80; stage 1 B1 80-100; stage 0 B1 103-123.
TEST_F(ReplayWhatIf, CoresComeFromTheRecording) {
  record(two_stages("1f1b", 2));
  EXPECT_EQ(last_run("--cores 1")["run"], "cores 1");
  EXPECT_DOUBLE_EQ(makespan("--cores 1"), 0.123);
  EXPECT_DOUBLE_EQ(makespan("--cores 2"), 0.096);
  EXPECT_DOUBLE_EQ(run_json("simulate --pipeline p.json --cores 1 --out t.json")["makespan_s"], 0.123);
  EXPECT_EQ(json::parse(testing::read_all(sandbox_.path("t.json")))["iterations"][0]["cores"], 1);
  EXPECT_DOUBLE_EQ(makespan(""), 0.123);
  EXPECT_DOUBLE_EQ(makespan("--network none"), 0.120);  // the core always has work
  EXPECT_DOUBLE_EQ(makespan("--cores 0"), 0.096);
  expect_refused("--cores -1", {"option '--cores': expected a whole number from 0", "-1"});
}

// GPipe with stage 1 twice as slow: F0 13-33, F1 33-53, B0 53-93, B1 93-133, arrival at 136, B1 136-156.
TEST_F(ReplayWhatIf, ConditionsCombineWithChanges) {
  record(two_stages("1f1b", 2));
  const json runs =
      run_json("replay --trace t.json --pipeline-schedule gpipe --slow rank=1:2 --out last.json")["runs"];
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[2]["run"], "gpipe");
  EXPECT_DOUBLE_EQ(runs[2]["makespan_s"].get<double>(), 0.096);
  EXPECT_DOUBLE_EQ(runs[3]["makespan_s"].get<double>(), 0.156);
  const json written = json::parse(testing::read_all(sandbox_.path("last.json")));
  EXPECT_EQ(written["iterations"][0]["makespan_ns"], 156'000'000);
  EXPECT_FALSE(written["iterations"][0]["spans"]["op"].empty());
}

// 1 MB takes 20 ms alone at 50 MB/s. F0's message leaves at 10. Half of it has arrived at 20, when F1's
// leaves and both get half of the link: F0's arrives at 40, and F1's, of which half is left then, at 50. On
// stage 1 F0 40-50, B0 50-70, F1 70-80, B1 80-100; B0's gradient arrives at 90, B1's at 120; stage 0 ends
// with B1, 120-140.
TEST_F(ReplayWhatIf, ContentionSharesTheLinksOfACluster) {
  record(two_stages("1f1b", 2));
  write_cluster(8);
  EXPECT_DOUBLE_EQ(makespan("--network contention --cluster ./slow.json"), 0.140);
  EXPECT_EQ(last_run("--network contention --cluster ./slow.json")["run"], "network contention");
  // At 100 MB/s F0's message arrives at 20, F1's at 30: F0 20-30, B0 30-50, F1 50-60, B1 60-80, arrival at
  // 90.
  EXPECT_DOUBLE_EQ(makespan("--network contention --cluster ./slow.json --bandwidth-scale 2"), 0.110);
  // Like 50 MB/s to and from rank 1.
  EXPECT_DOUBLE_EQ(makespan("--network contention --cluster ./slow.json --bandwidth-scale 2 "
                            "--slow-link rank=1:0.5"),
                   0.140);
  write_cluster(1);
  expect_refused("--network contention --cluster ./slow.json", {"'--cluster'", "the 2 GPUs", "with 1"});
  expect_refused("--network contention", {"'--network'", "'--cluster', '--plan'", "found none"});
}

// Stage 0 sends F0's message at 10 ms and F1's at 20. Messages of 3 ms and 6 ms follow each other, but
// messages of 30 ms overlap.
TEST_F(ReplayWhatIf, SaysThatMessagesOverlapOnSlowerLinks) {
  record(two_stages("1f1b", 2));
  const std::string overlap = "messages overlap with another message";
  for (const std::string options : {"", "--bandwidth-scale 0.5", "--slow-link rank=1:0.5"})
    EXPECT_EQ(replay(options).err.find(overlap), std::string::npos) << options;
  for (const std::string options : {"--bandwidth-scale 0.1", "--slow-link rank=1:0.1"})
    EXPECT_NE(replay(options).err.find(overlap), std::string::npos) << options;
}

TEST_F(ReplayWhatIf, NamesStalledGroups) {
  record(two_stages("1f1b", 2));
  const RunResult result = replay("--fail rank=1:0.03 --out f.json --format json --repeat 3");
  EXPECT_EQ(result.exit_code, 3);
  // A pipeline of durations belongs to no plan, which would have tp groups.
  EXPECT_EQ(result.err, "dflop: iteration 0 does not finish: 2 of 2 ranks stall\n");
  const json out = testing::rows_of(result.out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0]["reason"], "waits for rank 1");
  EXPECT_DOUBLE_EQ(out[0]["since_s"].get<double>(), 0.02);
  EXPECT_EQ(out[1]["reason"], "failed");
  EXPECT_DOUBLE_EQ(out[1]["since_s"].get<double>(), 0.03);
  EXPECT_TRUE(sandbox_.has("f.json"));
}

// The recorded program has the same instructions in the same places as the simulated one, so the same seed
// gives them the same factors.
TEST_F(ReplayWhatIf, RepeatsLikeTheSimulator) {
  record(two_stages("1f1b", 2));
  const std::string options = " --jitter 0.1 --repeat 50";
  const json repeated = run_json("replay --trace t.json" + options);
  const json spread = repeated["distribution"];
  EXPECT_EQ(spread["runs"], 50);
  EXPECT_DOUBLE_EQ(repeated["runs"].back()["makespan_s"].get<double>(), spread["mean_s"].get<double>());
  EXPECT_LT(spread["least_s"], spread["most_s"]);
  EXPECT_EQ(spread, run_json("simulate --pipeline p.json" + options)["distribution"]);
  EXPECT_EQ(run_json("replay --trace t.json --seed 2" + options)["distribution"],
            run_json("simulate --pipeline p.json --seed 2" + options)["distribution"]);
  const RunResult table = replay(options);
  EXPECT_NE(table.out.find("of the last row (above: their mean):"), std::string::npos) << table.out;
  EXPECT_EQ(replay(options + " --format csv").out.rfind("runs,mean_s", 0), 0u);
  // Without conditions, the last row is the replay, which is always the same.
  const json same = run_json("replay --trace t.json --repeat 3");
  EXPECT_EQ(same["runs"].size(), 2u);
  EXPECT_DOUBLE_EQ(same["distribution"]["most_s"].get<double>(), 0.096);
}

TEST_F(ReplayWhatIf, ConditionsOfPlansEqualTheSimulators) {
  const std::string data = " --data traces/datasets/vision_mix.csv --iterations 2 ";
  ASSERT_EQ(
      sandbox_
          .run(
              "plan" + data +
              "--model llava-ov-llama3-8b --cluster a100-80g-vtrain:2 --gbs 64 --planner megatron --out a.json")
          .exit_code,
      0);
  ASSERT_EQ(sandbox_.run("schedule --plan a.json" + data + "--out s.json").exit_code, 0);
  run_json("simulate --plan a.json --schedule s.json --out t.json");
  for (const std::string options :
       {"--network contention", "--jitter 0.05 --repeat 4", "--slow rank=0:1.5 --pause rank=8:0.1:0.2"}) {
    const json simulated = run_json("simulate --plan a.json --schedule s.json " + options);
    const json replayed =
        run_json("replay --trace t.json --cluster a100-80g-vtrain:2 --iteration all " + options);
    EXPECT_NEAR(replayed["runs"].back()["makespan_s"].get<double>(),
                simulated["iteration_s_mean"].get<double>(), 1e-6)
        << options;
    if (!simulated.contains("distribution")) continue;
    EXPECT_EQ(replayed["distribution"]["runs"], 8);
    EXPECT_NEAR(replayed["distribution"]["p95_s"].get<double>(),
                simulated["distribution"]["p95_s"].get<double>(), 1e-6);
  }
  // The recording names its cluster. Links inside tensor-parallel groups are part of its compute.
  EXPECT_EQ(
      run_json("replay --trace t.json --iteration all --network contention")["runs"],
      run_json(
          "replay --trace t.json --cluster a100-80g-vtrain:2 --iteration all --network contention")["runs"]);
  ASSERT_EQ(json::parse(testing::read_all(sandbox_.path("a.json")))["llm"]["tp"], 8);
  for (const std::string option : {"--slow-link rank=0:0.5", "--bandwidth-scale 2"}) {
    EXPECT_NE(replay(option).err.find("part of its recorded compute"), std::string::npos) << option;
  }
  EXPECT_EQ(replay("--slow rank=0:2").err.find("part of its recorded compute"), std::string::npos);
  // The second iteration by itself is the second run of the seed.
  EXPECT_EQ(run_json("replay --trace t.json --iteration 1 --jitter 0.05 --out o.json")["iterations"], 1);
  run_json("simulate --plan a.json --schedule s.json --jitter 0.05 --out j.json");
  const json one = json::parse(testing::read_result(sandbox_.path("o.json")));
  const json both = json::parse(testing::read_result(sandbox_.path("j.json")));
  EXPECT_NEAR(one["iterations"][0]["makespan_ns"].get<double>(),
              both["iterations"][1]["makespan_ns"].get<double>(), 100);
  // Another plan brings its cluster.
  EXPECT_EQ(run_json("replay --trace t.json --plan a.json --schedule s.json --network contention")["runs"]
                .back()["run"],
            "network contention");
}

TEST_F(ReplayWhatIf, AProfilePricesPartsThatWereNotRecorded) {
  // The recording is a simulation with the same profile, so their ratio is 1 everywhere. It has no split
  // backwards: in an order that splits them, the plan takes as long as in its own simulation.
  const std::string data = " --data traces/datasets/vision_mix.csv --iterations 2 --gbs 32";
  const std::string plan = "plan --model tiny-vlm --cluster a100-80g:1" + data +
                           " --planner search --microbatches 4 --layout disaggregated --tp 1 --pp 1 --dp 1 "
                           "--encoder-tp 1 --encoder-pp 1 --encoder-dp 1";
  ASSERT_EQ(sandbox_.run("profile --device host --model tiny-vlm --budget-s 0.2 --out f.json").exit_code, 0);
  ASSERT_EQ(sandbox_.run(plan + " --pipeline-schedule 1f1b --out p1.json").exit_code, 0);
  ASSERT_EQ(sandbox_.run(plan + " --pipeline-schedule zb-h1 --out p2.json").exit_code, 0);
  for (const std::string k : {"1", "2"}) {
    const std::string schedule =
        "schedule --plan p" + k + ".json" + data + " --scheduler lpt --out s" + k + ".json";
    ASSERT_EQ(sandbox_.run(schedule).exit_code, 0);
  }
  ASSERT_EQ(
      sandbox_.run("simulate --plan p1.json --schedule s1.json --profile f.json --out t.json").exit_code, 0);
  const double expected =
      run_json("simulate --plan p2.json --schedule s2.json --profile f.json")["iteration_s_mean"];
  EXPECT_NEAR(makespan("--plan p2.json --schedule s2.json --profile f.json"), expected, 1e-6 * expected);
  EXPECT_NE(makespan("--plan p2.json --schedule s2.json"), expected)
      << "the analytic model knows other shares";
}

TEST_F(ReplayWhatIf, RunsAnOrderOfTheUsers) {
  record(two_stages("1f1b", 4));
  const double gpipe = simulated(two_stages("gpipe", 4));
  const json last = last_run("--order o.json");
  EXPECT_EQ(last["run"], "order o.json");
  EXPECT_EQ(last["compared_with"], "replayed");
  EXPECT_DOUBLE_EQ(last["makespan_s"].get<double>(), gpipe);
  const double longer = simulated(two_stages("gpipe", 6));
  EXPECT_EQ(last_run("--order o.json --microbatches 6")["run"], "order o.json, 6 microbatches");
  EXPECT_DOUBLE_EQ(makespan("--order o.json --microbatches 6"), longer);
  // Half of each backward of 20 ms is for the weights.
  std::string split = two_stages("zb-h1", 4, R"(, "backward_weight_s": 0.01)");
  split.replace(split.find("\"backward_s\": 0.02"), 18, "\"backward_s\": 0.01");
  const double zero_bubble = simulated(split);
  EXPECT_DOUBLE_EQ(makespan("--order o.json --weight-share 0.5"), zero_bubble);
  expect_refused("--order o.json", {"what-if 'order o.json'", "'--weight-share'"});
  // One rank after the other: stage 0 F0 0-10, B0 46-66, F1 66-76, B1 112-132.
  record(two_stages("1f1b", 2));
  testing::write_all(sandbox_.path("o.json"), R"({"schema": "dflop.order", "version": 1,
    "ranks": [["F0", "B0", "F1", "B1"], ["F0", "B0", "F1", "B1"]]})");
  EXPECT_DOUBLE_EQ(makespan("--order o.json"), 0.132);
}

// The recording holds the placement of stages, so an order without a placement is read for that placement.
TEST_F(ReplayWhatIf, OrdersKnowTheChunksOfTheRecording) {
  for (const char* schedule : {"interleaved", "zb-v"}) {
    record(two_stages(schedule, 4, R"(, "chunks": 2, "backward_weight_s": 0.01)"));
    EXPECT_EQ(last_run("--order o.json")["difference_s"], 0.0) << schedule;
    json order = json::parse(testing::read_all(sandbox_.path("o.json")));
    ASSERT_EQ(order.erase("placement"), 1u);
    testing::write_all(sandbox_.path("o.json"), order.dump());
    EXPECT_EQ(last_run("--order o.json")["difference_s"], 0.0) << schedule;
  }
}

TEST_F(ReplayWhatIf, RejectsBadOrdersAndConditions) {
  record(two_stages("1f1b", 2));
  // With one chunk, interleaved equals 1f1b, so it would seem to gain nothing.
  expect_refused("--pipeline-schedule interleaved", {"'chunks'", "at least 2 for interleaved", "found 1"});
  expect_refused("--order o.json --pipeline-schedule gpipe",
                 {"'--order'", "'--pipeline-schedule'", "cannot be combined with"});
  expect_refused("--order none.json", {"none.json"});
  expect_refused("--order o.json --microbatches 3", {"what-if 'order o.json, 3 microbatches'", "o.json"});
  testing::write_all(sandbox_.path("bad.json"),
                     R"({"schema": "dflop.order", "version": 1, "ranks": [["F0", "F9"], []]})");
  expect_refused("--order bad.json", {"what-if 'order bad.json'", "ranks[0][1]", "F9"});
  expect_refused("--weight-share 0.5", {"'--weight-share'", "'--order'"});
  expect_refused("--slow rank=2:2", {"'--slow'", "a rank from 0 to 1", "rank=2"});
  expect_refused("--fail rank=7:2", {"'--fail'", "a rank from 0 to 1"});
  expect_refused("--pause rank=1:2", {"'--pause'", "rank=R:START:DURATION"});
  expect_refused("--network wifi", {"'--network'", "'wifi'"});
  expect_refused("--jitter -1", {"'--jitter'"});
  expect_refused("--repeat 0", {"'--repeat'"});
  // Ranks with different numbers of stages: the encoder and one LLM stage on each rank.
  record(R"({"schema": "dflop.pipeline", "version": 1, "schedule": "encoder-in-bubbles", "stages": 2,
    "microbatches": 2, "forward_s": 0.01, "backward_s": 0.02, "encoder_forward_s": 0.001,
    "encoder_backward_s": 0.002})");
  expect_refused("--order o.json", {"the same number of stages on each", "3 stages on 2 ranks"});
}

TEST_F(ReplayWhatIf, ForImportedTimelinesNamesMissingInputs) {
  ASSERT_EQ(sandbox_.run("import --kineto traces/kineto/rank0.json traces/kineto/rank1.json --out t.json")
                .exit_code,
            0);
  expect_refused(
      "", {"t.json", "iterations[1].spans.position[0]", "not who waited for what",
           "timelines of 'dflop import' have it if ranks have ranges of a pipeline or meet in collectives"});
}

}  // namespace replay_what_if_test
}  // namespace dflop
