// dflop fidelity: live runs of a grid of plans beside their predictions.
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
#include "traces/files/specs.hpp"

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
    return sandbox.run("fidelity --plans grid.json " + options);
  }
  /// Writes p.json, a profile that is measured in no time, once for all tests.
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

TEST_F(Fidelity, SaysHowFarEachPlanIsOff) {
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
    // Memory of the host is counted: what is missing are messages.
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

/// Of 3 steps with 4 microbatches, encoder and LLM each have 12 forwards and backwards and 3 optimizer steps,
/// and 12 messages of activations go one way and 12 of gradients the other. The tp plan has stages of both
/// and 2 microbatches.
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

/// Every predicted second is 0 but those of the optimizer: the ranks end with its step of 2 s.
TEST_F(Fidelity, PredictsWhatTheProfileSays) {
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

TEST_F(Fidelity, MeasuresTheProfilesThatItIsNotGiven) {
  write_grid();
  const RunResult result = run("--steps 1 --warm-up 1 --budget-s 0.1");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("mean |error|"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("max |error|"), std::string::npos) << result.out;
}

TEST_F(Fidelity, TakesPlansFromFilesBesideTheGrid) {
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
      sandbox.run("fidelity --plans grids/grid.json --steps 1 --warm-up 1 --format json --profile p.json");
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
  testing::Running run(sandbox, {"fidelity", "--plans", "grid.json", "--profile", "p.json", "--steps",
                                 "10000", "--out", "out/of/sight"});
  run.wait_until([&] { return run.has_threads(); });
  run.send(SIGINT);
  EXPECT_EQ(run.wait(), 128 + SIGINT) << run.err();
  EXPECT_NE(run.err().find("stopped by signal 2; 0 of 2 plans are done"), std::string::npos) << run.err();
  EXPECT_FALSE(sandbox.has("out"));
}

TEST_F(Fidelity, ReportsThePlansThatAreDone) {
  write_grid();
  write_profile();
  testing::Running run(
      sandbox, {"fidelity", "--plans", "grid.json", "--profile", "p.json", "--steps", "20", "--out", "out"});
  run.wait_until([&] { return run.err().find("plan 'split': ") != std::string::npos; });
  run.send(SIGINT);
  EXPECT_EQ(run.wait(), 128 + SIGINT) << run.err();
  EXPECT_NE(run.err().find("stopped by signal 2; 1 of 2 plans are done"), std::string::npos) << run.err();
  const json report = json::parse(testing::read_all(sandbox.path("out/fidelity.json")));
  ASSERT_EQ(report["plans"].size(), 1U);
  EXPECT_EQ(report["plans"][0]["name"], "split");
}

/// Measuring takes hours here; after a second it is what is under way.
TEST_F(Fidelity, StopsWhileItMeasures) {
  write_grid();
  testing::Running run(sandbox, {"fidelity", "--plans", "grid.json", "--steps", "1", "--warm-up", "1",
                                 "--budget-s", "86400", "--out", "out"});
  run.wait_until([&] { return run.has_threads(); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.err();
  EXPECT_NE(run.err().find("stopped by signal 15; 0 of 2 plans are done"), std::string::npos) << run.err();
  EXPECT_FALSE(sandbox.has("out"));
}

TEST_F(Fidelity, RefusesAFolderThatCannotBeMade) {
  write_grid();
  testing::write_all(sandbox.path("file"), "");
  for (const std::string out : {"file", "file/out", "/proc/out", "/proc/out/of/sight"}) {
    const RunResult result = run("--steps 1 --out " + out);
    EXPECT_EQ(result.exit_code, 2) << out;
    EXPECT_NE(result.err.find(out + ": the directory could not be made"), std::string::npos) << result.err;
  }
}

}  // namespace fidelity_test
}  // namespace dflop
