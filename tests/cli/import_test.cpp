// dflop import, as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/studies/what_if/recorded_steps.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace import_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

constexpr const char* kTwoRanks = "import --kineto traces/kineto/rank0.json traces/kineto/rank1.json";

TEST(Import, PrintsStepsStreamsCommunicationAndFindings) {
  // The times that docs/replay.md draws.
  const Sandbox sandbox;
  const RunResult result = sandbox.run(std::string(kTwoRanks) + " --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  ASSERT_EQ(out["traces"].size(), 2u);
  EXPECT_EQ(out["traces"][1]["rank"], 1);
  EXPECT_DOUBLE_EQ(out["traces"][1]["clock_offset_s"].get<double>(), 250e-6);
  ASSERT_EQ(out["steps"].size(), 4u);
  const json& step = out["steps"][0];
  EXPECT_EQ(step["rank"], 0);
  EXPECT_EQ(step["step"], 1);
  EXPECT_DOUBLE_EQ(step["host_s"].get<double>(), 1e-3);
  EXPECT_DOUBLE_EQ(step["duration_s"].get<double>(), 1e-3);
  EXPECT_DOUBLE_EQ(step["busy_s"].get<double>(), 810e-6);
  EXPECT_DOUBLE_EQ(step["compute_s"].get<double>(), 350e-6);
  EXPECT_DOUBLE_EQ(step["communication_s"].get<double>(), 450e-6);
  EXPECT_DOUBLE_EQ(step["exposed_communication_s"].get<double>(), 450e-6);
  EXPECT_DOUBLE_EQ(step["idle_s"].get<double>(), 190e-6);
  EXPECT_DOUBLE_EQ(step["copy_s"].get<double>(), 10e-6);
  EXPECT_DOUBLE_EQ(step["forward_fraction"].get<double>(), 100.0 / 350);
  EXPECT_DOUBLE_EQ(step["backward_fraction"].get<double>(), 200.0 / 350);
  EXPECT_DOUBLE_EQ(step["optimizer_fraction"].get<double>(), 50.0 / 350);
  ASSERT_EQ(out["streams"].size(), 6u);
  EXPECT_EQ(out["streams"][1]["stream"], 20);
  ASSERT_EQ(out["communication"].size(), 6u);
  const json& recv = out["communication"][0];
  EXPECT_EQ(recv["operation"], "recv");
  EXPECT_DOUBLE_EQ(recv["transfer_s"].get<double>(), 100e-6);
  EXPECT_DOUBLE_EQ(recv["wait_s"].get<double>(), 440e-6);
  EXPECT_DOUBLE_EQ(recv["bandwidth_bytes_per_s"].get<double>(), 40e9);  // 4 MB in 100 us
  // Rank 1's clock is 250 us ahead. The other times are corrected for this.
  EXPECT_DOUBLE_EQ(out["traces"][1]["clock_offset_s"].get<double>(), 250e-6);
  EXPECT_TRUE(out["findings"].empty()) << out["examples"];
}

TEST(Import, PrintsTablesAndCsv) {
  const Sandbox sandbox;
  const RunResult table = sandbox.run("import --kineto traces/kineto/ddp");
  EXPECT_EQ(table.exit_code, 0) << table.err;
  for (const char* part : {"by step:", "by stream:", "communication:", "findings:", "straggler: traces"}) {
    EXPECT_NE(table.out.find(part), std::string::npos) << part << "\n" << table.out;
  }
  const RunResult both = sandbox.run(kTwoRanks);
  EXPECT_NE(both.out.find("no findings"), std::string::npos) << both.out;
  const RunResult one = sandbox.run("import --kineto traces/kineto/rank0.json");
  EXPECT_NE(one.out.find("found traces of 1; missing 1"), std::string::npos) << one.out;
  const RunResult csv = sandbox.run(std::string(kTwoRanks) + " --format csv");
  EXPECT_EQ(csv.out.substr(0, csv.out.find(',')), "rank");
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 5);
}

TEST(Import, WritesTheTimeline) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.run(std::string(kTwoRanks) + " --out t.json").exit_code, 0);
  const json timeline = json::parse(testing::read_all(sandbox.path("t.json")));
  EXPECT_EQ(timeline["schema"], "dflop.timeline");
  ASSERT_EQ(timeline["iterations"].size(), 2u);
  EXPECT_EQ(timeline["iterations"][0]["makespan_ns"], 1'001'000);
  ASSERT_EQ(sandbox.run(std::string(kTwoRanks) + " --out t.json.gz").exit_code, 0);
  EXPECT_TRUE(sandbox.has("t.json.gz"));
}

constexpr const char* kPipeline = "import --kineto traces/kineto/pipeline/";

std::string pipeline_files(const std::string& order) {
  std::string files = kPipeline + order + "-rank0.json.gz";
  for (const char* rank : {"1", "2"})
    files += " traces/kineto/pipeline/" + order + "-rank" + rank + ".json.gz";
  return files;
}

// Two orders were recorded with the same sleeping stages: each predicts the other.
TEST(Import, ARecordedOrderPredictsAnother) {
  const Sandbox sandbox;
  const auto recorded = [&](const std::string& order) {
    const RunResult result = sandbox.run(pipeline_files(order) + " --out " + order + ".json --format json");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const json out = json::parse(result.out);
    EXPECT_TRUE(out["findings"].empty()) << result.out;
    EXPECT_EQ(out["pipeline"].size(), 3u);
    return json::parse(sandbox.run("replay --trace " + order + ".json --format json").out);
  };
  const auto makespan = [](const json& replay, std::size_t run) {
    return replay["runs"].at(run)["makespan_s"].get<double>();
  };
  const json first = recorded("1f1b");
  const json second = recorded("gpipe");
  const auto predicted = [&](const std::string& from, const std::string& to) {
    const RunResult result =
        sandbox.run("replay --trace " + from + ".json --pipeline-schedule " + to + " --format json");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return makespan(json::parse(result.out), 2);
  };
  EXPECT_NEAR(predicted("1f1b", "gpipe"), makespan(second, 0), 0.005 * makespan(second, 0));
  EXPECT_NEAR(predicted("gpipe", "1f1b"), makespan(first, 0), 0.005 * makespan(first, 0));
  EXPECT_GT(makespan(first, 0), 1.05 * makespan(second, 0)) << "they are not the same";
}

TEST(Import, OnlyStepsThatFollowEachOtherAreKept) {
  PipelineImport pipeline;
  for (const int number : {1, 2, 4, 5, 6, 9}) pipeline.steps.emplace_back().number = number;
  std::vector<Nanoseconds> replayed;
  for (const PipelineStep& step : pipeline.steps) replayed.emplace_back(step.number);
  keep_consecutive(pipeline, replayed, "t.json");
  ASSERT_EQ(pipeline.steps.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pipeline.steps[i].number, static_cast<std::int64_t>(4 + i));
    EXPECT_EQ(replayed[i], Nanoseconds(4 + static_cast<std::int64_t>(i)));
  }
  EXPECT_EQ(pipeline.findings.size(), 3u) << "steps 1, 2 and 9";
}

TEST(Import, HalfARunIsAFindingAndCannotBeReplayed) {
  const Sandbox sandbox;
  const RunResult result = sandbox.run(std::string(kPipeline) + "1f1b-rank0.json.gz --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_TRUE(out["pipeline"].empty());
  EXPECT_EQ(out["examples"].at(0)["finding"], "missing_rank") << result.out;
  EXPECT_NE(result.out.find("it ran on 3 ranks"), std::string::npos);
}

// The run has an encoder, two LLM stages and four microbatches. A plan with the same fits, and one with more
// does not.
TEST(Import, APlanNamesPartsOfStagesOrContradictsThem) {
  const Sandbox sandbox;
  const auto plan = [&](const std::string& name, int microbatches, int dp) {
    const RunResult result = sandbox.run(
        "plan --layout disaggregated --tp 1 --encoder-tp 1 --pp 2 --encoder-pp 1 --encoder-dp 1 --gbs 16 --dp " +
        std::to_string(dp) + " --microbatches " + std::to_string(microbatches) +
        " --model tiny-vlm --cluster a100-80g:1 --data traces/datasets/vision_mix.csv --out " + name);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  };
  plan("plan.json", 4, 1);
  plan("more.json", 8, 1);
  plan("wide.json", 4, 2);
  const RunResult fits =
      sandbox.run(pipeline_files("1f1b") + " --plan plan.json --out run.json --format json");
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_TRUE(json::parse(fits.out)["findings"].empty()) << fits.out;
  const json timeline = json::parse(testing::read_all(sandbox.path("run.json")));
  EXPECT_EQ(timeline["iterations"][0]["stages"], json({"encoder 0", "llm 0", "llm 1"}));
  EXPECT_EQ(timeline["made_by"]["first_iteration"], json::parse(fits.out)["pipeline"][0]["step"]);
  EXPECT_EQ(timeline["iterations"][0]["stage_shapes"]["llm_layers"], json({0, 1, 1}));
  EXPECT_EQ(sandbox.run("replay --trace run.json --pipeline-schedule gpipe").exit_code, 0);
  const RunResult more = sandbox.run(pipeline_files("1f1b") + " --plan more.json --out no.json");
  expect_error(more, {"more.json", "without '--out'", "the plan has stage 0, microbatch 4 on rank 0"});
  const RunResult findings = sandbox.run(pipeline_files("1f1b") + " --plan more.json");
  EXPECT_NE(findings.out.find("unlike_plan      3"), std::string::npos) << findings.out;
  expect_error(sandbox.run(pipeline_files("1f1b") + " --plan wide.json --out no.json"),
               {"the plan has the ranks 0, 1, 2, 3, 4, but the traces are of 0, 1, 2"});
  EXPECT_FALSE(sandbox.has("no.json"));
  expect_error(sandbox.run(pipeline_files("1f1b") + " --schedule s.json"), {"'--schedule'", "'--plan'"});
  expect_error(sandbox.run(std::string(kTwoRanks) + " --plan plan.json"), {"expected ranges"});
}

// Two plans were recorded with the same stages, which sleep for each token and layer: encoder dp 1 or 2, LLM
// dp 2. Each predicts the other by linear fits through its own data, on the same four batches.
TEST(Import, ARecordedPlanPredictsOneOfAnotherDp) {
  const Sandbox sandbox;
  const std::string folder = "traces/kineto/plans/";
  const auto plan = [&](const std::string& name) {
    return " --plan " + folder + name + ".json --schedule " + folder + name + "-schedule.json";
  };
  const auto files = [&](const std::string& name, int ranks) {
    std::string all;
    for (int r = 0; r < ranks; ++r) all += " " + folder + name + "-rank" + std::to_string(r) + ".json.gz";
    return all;
  };
  const auto record = [&](const std::string& name, int ranks) {
    const RunResult result = sandbox.run("import --kineto" + files(name, ranks) + plan(name) + " --out " +
                                         name + ".json --format json");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(json::parse(result.out)["findings"].empty()) << result.out;
  };
  record("e1l2", 3);
  record("e2l2", 4);
  const auto predict = [&](const std::string& from, const std::string& to) {
    const json out = json::parse(
        sandbox.run("replay --trace " + from + ".json --iteration all --format json" + plan(to)).out);
    return out["runs"].at(2)["makespan_s"].get<double>();
  };
  const auto recorded = [&](const std::string& name) {
    const json out =
        json::parse(sandbox.run("replay --trace " + name + ".json --iteration all --format json").out);
    return out["runs"].at(0)["makespan_s"].get<double>();
  };
  EXPECT_NEAR(predict("e1l2", "e2l2"), recorded("e2l2"), 0.02 * recorded("e2l2"));
  EXPECT_NEAR(predict("e2l2", "e1l2"), recorded("e1l2"), 0.02 * recorded("e1l2"));
  EXPECT_GT(recorded("e1l2"), 1.1 * recorded("e2l2")) << "they are not the same";
  // Under a schedule of two iterations, steps 0 to 3 ran iterations 0, 1, 0, 1.
  json part = json::parse(testing::read_all(sandbox.path("e1l2.json")));
  part["made_by"]["first_iteration"] = 0;
  testing::write_all(sandbox.path("from0.json"), part.dump());
  json two = json::parse(testing::read_all(sandbox.path(folder + "e2l2-schedule.json")));
  two["iterations"].erase(3);
  two["iterations"].erase(2);
  testing::write_all(sandbox.path("two.json"), two.dump());
  const std::string other = " --iteration all --plan " + folder + "e2l2.json --schedule two.json";
  EXPECT_EQ(sandbox.run("replay --trace from0.json" + other).exit_code, 0);
  // A recording of the host that starts at step 2 had no schedule that repeats.
  for (json& iteration : part["iterations"]) iteration["source"] = "host";
  part["made_by"]["first_iteration"] = 2;
  testing::write_all(sandbox.path("from2.json"), part.dump());
  expect_error(sandbox.run("replay --trace from2.json" + other),
               {"two.json", "expected a schedule that has iteration 2, found 2 iterations"});
  // The traces of one plan do not match the other plan's schedule.
  expect_error(sandbox.run("import --kineto" + files("e1l2", 3) + plan("e2l2") + " --out no.json"),
               {"the plan has the ranks 0, 1, 2, 3, but the traces are of 0, 1, 2"});
}

TEST(Import, FilesThatAreCutOffAreErrors) {
  const Sandbox sandbox;
  const std::string name = "traces/kineto/pipeline/1f1b-rank0.json.gz";
  const std::string whole = testing::read_all(sandbox.path(name));
  testing::write_all(sandbox.path("cut.json.gz"), whole.substr(0, whole.size() / 2));
  expect_error(sandbox.run("import --kineto cut.json.gz"), {"cut.json.gz"});
  const std::string text = testing::read_all(sandbox.path("traces/kineto/rank0.json"));
  testing::write_all(sandbox.path("cut.json"), text.substr(0, text.size() / 2));
  expect_error(sandbox.run("import --kineto cut.json"), {"cut.json: traceEvents["});
}

TEST(Import, FilesWithoutARankGetTheLowestFreeRanks) {
  const Sandbox sandbox;
  const auto write = [&](const std::string& name, const std::string& head) {
    testing::write_all(sandbox.path(name),
                       "{" + head +
                           R"("traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1,
      "dur": 2, "args": {"device": 0, "stream": 7}}]})");
  };
  write("a.json", "");
  write("b.json", R"("distributedInfo": {"rank": 0},)");
  write("c.json", "");
  const json out = json::parse(sandbox.run("import --kineto a.json b.json c.json --format json").out);
  EXPECT_EQ(out["traces"][0]["rank"], 1);
  EXPECT_EQ(out["traces"][1]["rank"], 0);
  EXPECT_EQ(out["traces"][2]["rank"], 2);
  EXPECT_TRUE(out["steps"][0]["step"].is_null());
}

TEST(Import, RejectsBadUsageAndInput) {
  const Sandbox sandbox;
  expect_error(sandbox.run("import"), {"kineto"});
  expect_error(sandbox.run("import --kineto missing.json"), {"missing.json"});
  expect_error(sandbox.run("import --kineto traces/kineto/rank0.json traces/kineto/rank0.json"),
               {"traces/kineto/rank0.json", "rank 0 again"});
  std::string text = testing::read_all(sandbox.path("traces/kineto/rank0.json"));
  testing::write_all(sandbox.path("r.json"), text);
  expect_error(sandbox.run("import --kineto r.json --out r.json"), {"'--out'", "'--kineto'"});
  expect_error(sandbox.run("import --kineto traces/kineto/rank1.json r.json --out ./r.json"), {"'--kineto'"});
  text.replace(text.find("\"dur\": "), 7, "\"dur\": -");
  testing::write_all(sandbox.path("bad.json"), text);
  expect_error(sandbox.run("import --kineto bad.json --out t.json"),
               {"bad.json: traceEvents[0] 'ProfilerStep#1': key 'dur'", "found -1000"});
  EXPECT_FALSE(sandbox.has("t.json"));
}

}  // namespace import_test
}  // namespace dflop
