// dflop check runs compares live or recorded runs of plans with their predictions.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "backend/run/worlds.hpp"
#include "tests/cli/run.hpp"
#include "tests/cli/running.hpp"
#include "tests/traces/profile_fixtures.hpp"

namespace dflop {
namespace fidelity_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

constexpr const char* kGrid = R"({
  "schema": "dflop.grid", "version": 1, "model": "tiny-vlm", "cluster": "a100-80g-vtrain:1", "gbs": 8,
  "plans": [
    {"name": "split", "encoder": {"tp": 1, "pp": 1, "dp": 1}, "llm": {"tp": 1, "pp": 1, "dp": 1}, "microbatches": 4},
    {"name": "tp", "llm": {"tp": 2, "pp": 1, "dp": 1}, "microbatches": 2}
  ]
})";

struct Fidelity : ::testing::Test {
  Sandbox sandbox;

  void write_grid(const std::string& from = "", const std::string& to = "") const {
    std::string text = kGrid;
    if (!from.empty()) {
      const std::size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      text.replace(at, from.size(), to);
    }
    testing::write_all(sandbox.path("grid.json"), text);
  }
  RunResult run(const std::string& options) const {
    return sandbox.run("check runs --plans grid.json " + options);
  }
  /// Writes p.json, a profile with a minimal measuring budget, made once for all tests.
  void write_profile() const {
    static const std::string profile = [&] {
      const RunResult result = sandbox.run(
          "profile --model tiny-vlm --budget-s 0.1 --most-tokens 64 --tp 1 2 --no-sequence-parallel "
          "--out p.json");
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return testing::read_all(sandbox.path("p.json"));
    }();
    testing::write_all(sandbox.path("p.json"), profile);
  }
  void expect_refused(const std::string& from, const std::string& to, const std::string& message) const {
    write_grid(from, to);
    const RunResult result = run("--steps 1 --profile p.json");
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_TRUE(result.out.empty());
    EXPECT_NE(result.err.find(message), std::string::npos) << message << "\n" << result.err;
  }
};

TEST_F(Fidelity, ReportsTheErrorOfEachPlan) {
  write_grid();
  write_profile();
  const RunResult result = run("--steps 3 --warm-up 1 --profile p.json --format json --out out");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  ASSERT_EQ(report["plans"].size(), 2U);
  double mean = 0;
  double most = 0;
  for (const json& plan : report["plans"]) {
    ASSERT_EQ(plan["steps"].size(), 3U);
    std::vector<double> measured;
    for (const json& step : plan["steps"]) measured.push_back(step["measured_s"]);
    std::sort(measured.begin(), measured.end());
    EXPECT_GT(measured[0], 0);
    EXPECT_EQ(plan["measured_s"], measured[1]) << "the median of three";
    const double error = plan["predicted_s"].get<double>() / measured[1] - 1;
    EXPECT_NEAR(plan["error"].get<double>(), error, 1e-12);
    EXPECT_NEAR(plan["engine_error"].get<double>(), plan["replayed_s"].get<double>() / measured[1] - 1,
                1e-12);
    EXPECT_GT(plan["extrapolated_fraction"], 0.5) << "64 tokens were measured at most";
    mean += std::abs(error) / 2;
    most = std::max(most, std::abs(error));
    // Host memory is counted. Only messages are missing.
    for (const json& rank : plan["ranks_memory"]) {
      const double peak = rank["measured_peak_bytes"];
      EXPECT_NEAR(rank["predicted_peak_bytes"].get<double>(), peak, 0.02 * peak) << plan["name"];
    }
  }
  EXPECT_NEAR(report["summary"]["mean_error"].get<double>(), mean, 1e-12);
  EXPECT_NEAR(report["summary"]["max_error"].get<double>(), most, 1e-12);
  EXPECT_EQ(json::parse(testing::read_result(sandbox.path("out/fidelity.json"))), report);
  for (const char* file : {"out/fidelity.csv", "out/operations.csv"}) EXPECT_TRUE(sandbox.has(file)) << file;
  const std::string page = testing::read_all(sandbox.path("out/report.html"));
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos) << "refers to nothing outside";
}

/// A GPU profile with points of 16 and 32 tokens does not cover microbatches of hundreds, so no plan gets a
/// number. Each plan has a row with the reason. --extrapolate gives guesses.
TEST_F(Fidelity, NamesPlansThatFailAndContinues) {
  write_grid();
  write_profile();
  const ProfileTables profile = parse_profile_tables(testing::read_all(sandbox.path("p.json")), "p.json");
  testing::write_all(sandbox.path("p.json"), to_json(fixtures::as_of_gpu(profile, 32)));
  const std::string options =
      "--steps 1 --warm-up 1 --profile p.json --foreign-profile --format json --out out";
  const RunResult result = run(options);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const json report = json::parse(result.out);
  ASSERT_EQ(report["plans"].size(), 2U);
  for (const json& plan : report["plans"]) {
    const std::string failure = plan["failure"];
    EXPECT_TRUE(failure.starts_with("failed: ")) << failure;
    EXPECT_NE(failure.find("was measured up to 32 tokens"), std::string::npos) << failure;
    EXPECT_NE(failure.find("--extrapolate"), std::string::npos) << failure;
    EXPECT_TRUE(plan["measured_s"].is_null());
  }
  EXPECT_TRUE(report["summary"].is_null());
  EXPECT_NE(testing::read_all(sandbox.path("out/report.html")).find("failed: "), std::string::npos);
  const RunResult guesses = run(options + " --extrapolate");
  EXPECT_EQ(guesses.exit_code, 0) << guesses.err;
  EXPECT_NE(guesses.err.find("their times are guesses"), std::string::npos) << guesses.err;
  EXPECT_GT(json::parse(guesses.out)["plans"][0]["predicted_s"], 0);
}

TEST_F(Fidelity, KeepsTheProfileOfEachPlan) {
  write_grid();
  const RunResult result = run("--steps 1 --warm-up 1 --budget-s 0.1 --out out");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string first = testing::read_all(sandbox.path("out/profile-1.json"));
  EXPECT_EQ(parse_profile_tables(first, "first").tp.front().mode.tp, 1);
  const std::string second = testing::read_all(sandbox.path("out/profile-2.json"));
  EXPECT_EQ(parse_profile_tables(second, "second").tp.front().mode.tp, 2);
  EXPECT_NE(result.err.find("profile-1.json, profile-2.json"), std::string::npos) << result.err;
}

/// In 3 steps with 4 microbatches, encoder and LLM each have 12 forwards and backwards and 3 optimizer steps.
/// 12 messages of activations go one way and 12 of gradients the other. The tp plan has combined stages and 2
/// microbatches.
TEST_F(Fidelity, CountsOperations) {
  write_grid();
  write_profile();
  const RunResult result = run("--steps 3 --warm-up 1 --profile p.json --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::map<std::string, int> count;
  const json report = json::parse(result.out);
  for (const json& row : report["operations"]) {
    count[row["name"].get<std::string>() + "/" + row["module"].get<std::string>() + "/" +
          row["kind"].get<std::string>()] = row["count"];
  }
  const std::map<std::string, int> expected = {
      {"split/encoder/forward", 12},       {"split/encoder/backward", 12},
      {"split/encoder/optimizer_step", 3}, {"split/encoder/message", 12},
      {"split/llm/forward", 12},           {"split/llm/backward", 12},
      {"split/llm/optimizer_step", 3},     {"split/llm/message", 12},
      {"tp/encoder+llm/forward", 6},       {"tp/encoder+llm/backward", 6},
      {"tp/encoder+llm/optimizer_step", 3}};
  EXPECT_EQ(count, expected);
}

/// The second plan cannot run on devices of one core. This is an error before the first plan runs.
TEST_F(Fidelity, RejectsDevicesThatAPlanCannotShareBeforeItRuns) {
  write_grid(R"({"name": "tp", "llm": {"tp": 2, "pp": 1, "dp": 1}, "microbatches": 2})",
             R"({"name": "tp\u001b[2J", "encoder_share": 0.5, "encoder": {"tp": 1, "pp": 1, "dp": 1},
                 "llm": {"tp": 1, "pp": 1, "dp": 1}, "microbatches": 2})");
  const RunResult result = run("--steps 1 --budget-s 0.1");
  testing::expect_error(result, {"grid.json", "plan 'tp?[2J'", "--device-cores"});
  EXPECT_EQ(result.err.find("predicted"), std::string::npos) << result.err;
}

/// All predicted times are 0 except the optimizer's: the ranks end with its step of 2 s.
TEST_F(Fidelity, PredictionsFollowTheProfile) {
  write_grid();
  write_profile();
  ProfileTables profile = parse_profile_tables(testing::read_all(sandbox.path("p.json")), "p.json");
  for (TpProfile& tp : profile.tp) {
    for (UnitPoints& points : tp.units) {
      for (ProfilePoint& p : points) p.forward_s = p.backward_input_s = p.backward_weight_s = 0;
    }
  }
  profile.message = {};
  profile.optimizer = {2, 0};
  testing::write_all(sandbox.path("q.json"), to_json(profile));
  const RunResult result = run("--steps 1 --profile q.json --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  ASSERT_EQ(report["plans"].size(), 2U);
  for (const json& plan : report["plans"]) EXPECT_EQ(plan["predicted_s"], 2.0);
}

TEST_F(Fidelity, MeasuresMissingProfiles) {
  write_grid();
  const RunResult result = run("--steps 1 --warm-up 1 --budget-s 0.1");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("mean |error|"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("max |error|"), std::string::npos) << result.out;
}

TEST_F(Fidelity, TakesPlansFromFilesInAdditionToTheGrid) {
  write_profile();
  std::filesystem::create_directory(sandbox.path("grids"));
  testing::write_all(sandbox.path("grids/plan.json"), R"({"schema": "dflop.plan", "version": 1,
      "planner": "hand", "model": "tiny-vlm", "cluster": "a100-80g-vtrain:1", "gbs": 32, "layout": "disaggregated",
      "encoder": {"tp": 1, "pp": 1, "dp": 1, "layers": [2]}, "llm": {"tp": 1, "pp": 2, "dp": 1, "layers": [1, 1]},
      "microbatches": 4, "schedule": "1f1b", "recomputation": "none", "zero1": true,
      "sequence_parallel": false})");
  const std::string grid = R"({"schema": "dflop.grid", "version": 1, "model": "tiny-vlm",
      "cluster": "a100-80g-vtrain:1", "gbs": 8, "plans": [{"name": "planned", "file": "plan.json"}]})";
  testing::write_all(sandbox.path("grids/grid.json"), grid);
  const RunResult result =
      sandbox.run("check runs --plans grids/grid.json --steps 1 --warm-up 1 --format json --profile p.json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["plans"][0]["name"], "planned");
  EXPECT_EQ(report["plans"][0]["ranks_memory"].size(), 3U);
}

TEST_F(Fidelity, NamesThePlanThatDoesNotFit) {
  write_profile();
  expect_refused(R"("llm": {"tp": 2, "pp": 1)", R"("llm": {"tp": 2, "pp": 7)", "plan 'tp'");
  expect_refused(R"({"tp": 1, "pp": 1, "dp": 1}, "microbatches": 4)",
                 R"({"tp": 1, "pp": 3, "dp": 1}, "microbatches": 4)", "plan 'split'");
  expect_refused(R"("llm": {"tp": 2, "pp": 1, "dp": 1}, "microbatches": 2)", R"("file": "nowhere.json")",
                 "nowhere.json");
  expect_refused(R"("llm": {"tp": 2)", R"("llm": {"tp": 4)", "plan 'tp': ");
  expect_refused(R"("llm": {"tp": 2)", R"("llm": {"tp": 4)", "cannot be split over tp 4");
  write_grid();
  const std::string devices = world_names([](const WorldKind& kind) { return !kind.processes; });
  testing::expect_error(run("--device gpu"), {"option '--device': expected " + devices + ", found 'gpu'"});
  testing::expect_error(run("--gbs 3"), {"plan 'split'", "3 samples cannot fill"});
}

TEST_F(Fidelity, StopsOnASignalAndWritesNothing) {
  write_grid();
  write_profile();
  testing::Running run(sandbox, {"check", "runs", "--plans", "grid.json", "--profile", "p.json", "--steps",
                                 "10000", "--out", "out/of/sight"});
  run.wait_until([&] { return run.has_threads(); });
  run.send(SIGINT);
  EXPECT_EQ(run.wait(), 128 + SIGINT) << run.err();
  EXPECT_NE(run.err().find("stopped by signal 2; 0 of 2 plans are done"), std::string::npos) << run.err();
  EXPECT_FALSE(sandbox.has("out"));
}

TEST_F(Fidelity, ReportsFinishedPlans) {
  write_grid();
  write_profile();
  testing::Running run(sandbox, {"check", "runs", "--plans", "grid.json", "--profile", "p.json", "--steps",
                                 "20", "--out", "out"});
  run.wait_until([&] { return run.err().find("plan 'split': ") != std::string::npos; });
  run.send(SIGINT);
  EXPECT_EQ(run.wait(), 128 + SIGINT) << run.err();
  EXPECT_NE(run.err().find("stopped by signal 2; 1 of 2 plans are done"), std::string::npos) << run.err();
  const json report = json::parse(testing::read_all(sandbox.path("out/fidelity.json")));
  ASSERT_EQ(report["plans"].size(), 1U);
  EXPECT_EQ(report["plans"][0]["name"], "split");
}

/// Measuring takes hours here. After a second it is still in progress.
TEST_F(Fidelity, StopsWhileItMeasures) {
  write_grid();
  testing::Running run(sandbox, {"check", "runs", "--plans", "grid.json", "--steps", "1", "--warm-up", "1",
                                 "--budget-s", "86400", "--out", "out"});
  run.wait_until([&] { return run.has_threads(); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.err();
  EXPECT_NE(run.err().find("stopped by signal 15; 0 of 2 plans are done"), std::string::npos) << run.err();
  EXPECT_FALSE(sandbox.has("out"));
}

TEST_F(Fidelity, RejectsAFolderThatCannotBeMade) {
  write_grid();
  testing::write_all(sandbox.path("file"), "");
  for (const std::string out : {"file", "file/out", "/proc/out", "/proc/out/of/sight"}) {
    const RunResult result = run("--steps 1 --out " + out);
    EXPECT_EQ(result.exit_code, 2) << out;
    EXPECT_NE(result.err.find(out + ": the directory cannot be created"), std::string::npos) << result.err;
  }
}

/// The recordings use a plan with one encoder rank and one LLM rank, on images.
struct FidelityOfRecordings : Fidelity {
  FidelityOfRecordings() {
    write_profile();
    testing::write_all(sandbox.path("small.csv"), testing::image_records());
    testing::write_all(sandbox.path("plan.json"), R"({"schema": "dflop.plan", "version": 1,
      "planner": "hand", "model": "tiny-vlm", "cluster": "a100-80g-vtrain:1", "gbs": 4, "layout": "disaggregated",
      "encoder": {"tp": 1, "pp": 1, "dp": 1, "layers": [2]}, "llm": {"tp": 1, "pp": 1, "dp": 1, "layers": [2]},
      "microbatches": 2, "schedule": "1f1b", "recomputation": "none", "zero1": true,
      "sequence_parallel": false})");
  }

  void run_well(const std::string& command) const {
    const RunResult result = sandbox.run(command);
    ASSERT_EQ(result.exit_code, 0) << command << "\n" << result.err;
  }
  /// Writes t.json, two iterations as predicted by the profile.
  void simulate() const {
    run_well("schedule --plan plan.json --data small.csv --iterations 2 --scheduler lpt --out s.json");
    run_well("simulate --plan plan.json --schedule s.json --profile p.json --out t.json");
  }
  /// Imports the traces of three ranks in traces/kineto/plans as `file`.
  void import(const std::string& file, const std::string& options) const {
    run_well("import --kineto traces/kineto/plans/e1l2-rank?.json.gz --out " + file + " " + options);
  }
  RunResult judge(const std::string& options) const {
    return sandbox.run("check runs --recordings " + options);
  }
  json judged(const std::string& options) const {
    const RunResult result = judge(options + " --profile p.json --format json");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  }
  ProfileTables profile() const {
    return parse_profile_tables(testing::read_all(sandbox.path("p.json")), "p.json");
  }
};

TEST_F(FidelityOfRecordings, ACorrectPredictionHasNoError) {
  simulate();
  const json report = judged("t.json --out out");
  ASSERT_EQ(report["plans"].size(), 1U);
  const json& row = report["plans"][0];
  EXPECT_EQ(row["name"], "t.json");
  EXPECT_EQ(row["plan"], "E tp1 pp1 dp1 | L tp1 pp1 dp1 mb2");
  EXPECT_EQ(row["ranks"], 2);
  EXPECT_EQ(row["steps"].size(), 2U) << "none of a simulation warms up";
  EXPECT_EQ(row["error"], 0.0);
  EXPECT_EQ(row["engine_error"], 0.0);
  EXPECT_GT(row["measured_s"], 0.0);
  for (const json& rank : row["ranks_memory"])
    EXPECT_EQ(rank["measured_peak_bytes"], rank["predicted_peak_bytes"]);
  for (const json& operation : report["operations"]) {
    // A span is in whole nanoseconds, while a price is not.
    EXPECT_NEAR(operation["predicted_mean_s"].get<double>(), operation["measured_mean_s"].get<double>(),
                1e-9);
  }
  const json made_by = json::parse(testing::read_all(sandbox.path("out/fidelity.json")))["made_by"];
  EXPECT_EQ(made_by["profile"]["name"], "p.json");
  EXPECT_EQ(made_by["model"]["name"], "tiny-vlm");
}

/// Both ranks take turns on one core, in the recording and in the replay.
TEST_F(FidelityOfRecordings, TrainingIsReplayedAsByTheReplayCommand) {
  run_well("train --plan plan.json --data small.csv --steps 3 --cores 1 --record run.json");
  const json report = judged("run.json");
  const json& steps = report["plans"][0]["steps"];
  ASSERT_EQ(steps.size(), 2U) << "the first one warms up";
  for (int step = 1; step <= 2; ++step) {
    const RunResult replay =
        sandbox.run("replay --trace run.json --format json --iteration " + std::to_string(step));
    ASSERT_EQ(replay.exit_code, 0) << replay.err;
    const json runs = json::parse(replay.out)["runs"];
    EXPECT_EQ(steps[step - 1]["measured_s"], runs[0]["makespan_s"]);
    EXPECT_EQ(steps[step - 1]["replayed_s"], runs[1]["makespan_s"]);
  }
}

/// The plan has an encoder with dp 1 and an LLM with dp 2. Traces contain no memory.
TEST_F(FidelityOfRecordings, RunsOfOtherProgramsAreRowsToo) {
  simulate();
  import("run.json",
         "--plan traces/kineto/plans/e1l2.json --schedule traces/kineto/plans/e1l2-schedule.json");
  const json rows = judged("t.json run.json")["plans"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1]["name"], "run.json");
  EXPECT_EQ(rows[1]["plan"], "E tp1 pp1 dp1 | L tp1 pp1 dp2 mb6");
  EXPECT_EQ(rows[1]["ranks"], 3);
  EXPECT_NEAR(rows[1]["engine_error"].get<double>(), 0, 0.02);
  EXPECT_TRUE(rows[1]["measured_peak_bytes"].is_null());
  EXPECT_GT(rows[1]["predicted_peak_bytes"], 0);
}

TEST_F(FidelityOfRecordings, RejectsRecordingsOfUnknownShape) {
  const std::string how = "'dflop import' adds both with '--plan' and '--schedule'";
  import("bare.json", "");
  testing::expect_error(judge("bare.json --profile p.json"), {"bare.json: expected shapes of stages", how});
  import("planned.json", "--plan traces/kineto/plans/e1l2.json");
  testing::expect_error(judge("planned.json --profile p.json"),
                        {"planned.json: expected the work of each forward and backward", how});
  testing::write_all(sandbox.path("pipeline.json"), testing::two_stages());
  run_well("simulate --pipeline pipeline.json --out raw.json");
  testing::expect_error(judge("raw.json --profile p.json"), {"raw.json: expected shapes of stages"});
}

TEST_F(FidelityOfRecordings, RejectsAProfileOfAnotherModelOrDevice) {
  simulate();
  ProfileTables other = profile();
  other.model.llm.ffn += 1;
  testing::write_all(sandbox.path("other.json"), to_json(other));
  testing::expect_error(judge("t.json --profile other.json"),
                        {"other.json: recording 't.json': the profile is of another model"});
  ProfileTables two = profile();
  two.tp.erase(two.tp.begin());
  testing::write_all(sandbox.path("two.json"), to_json(two));
  testing::expect_error(judge("t.json --profile two.json"),
                        {"two.json: recording 't.json': expected what the plan needs, tp 1, found tp 2"});
}

TEST_F(FidelityOfRecordings, OptionsOfLiveRunsAreRejected) {
  simulate();
  for (const char* option : {"steps 3", "warm-up 3", "gbs 4", "seed 2", "budget-s 1", "device host",
                             "data small.csv", "cores 2", "foreign-profile"}) {
    testing::expect_error(judge(std::string("t.json --profile p.json --") + option),
                          {"applies only to live runs, found with '--recordings'"});
  }
  testing::expect_error(judge("t.json"), {"option '--recordings': needs '--profile FILE'"});
  testing::expect_error(judge("t.json --profile p.json --plans grid.json"),
                        {"option '--recordings': cannot be combined with '--plans'"});
  testing::expect_error(sandbox.run("check runs --profile p.json"),
                        {"option '--plans': expected this option or '--recordings', found neither"});
}

}  // namespace fidelity_test
}  // namespace dflop
