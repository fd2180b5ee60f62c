// dflop validate and dflop calibrate, as a user runs them, and the fit behind them.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/calibration.hpp"
#include "experiments/presets.hpp"
#include "tests/cli/run.hpp"

namespace dflop {
namespace {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kFolder = std::string(DFLOP_SOURCE_DIR) + "/traces/ground_truth/";

TEST(Validate, PrintsTheErrorsOfEachFile) {
  const Sandbox sandbox;
  const RunResult result = sandbox.run(
      "validate --truth traces/ground_truth/llama_b200.csv traces/ground_truth/megatron_a100_multi.csv "
      "--cluster b200 --format json --rows rows.csv");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json sets = json::parse(result.out)["sets"];
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0]["file"], "traces/ground_truth/llama_b200.csv");
  EXPECT_EQ(sets[0]["rows"], 12);
  EXPECT_LT(sets[0]["time_mape_percent"], 4);
  EXPECT_LT(sets[0]["memory_mape_percent"], 0.5);
  EXPECT_LE(sets[0]["time_median_ape_percent"], sets[0]["time_p95_ape_percent"]);
  EXPECT_LE(sets[0]["time_p95_ape_percent"], sets[0]["time_max_ape_percent"]);
  EXPECT_EQ(sets[1]["rows"], 54);
  EXPECT_TRUE(sets[1]["memory_mape_percent"].is_null());
  const std::string rows = testing::read_all(sandbox.path("rows.csv"));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 1 + 12 + 54);
}

TEST(Validate, RefusesBrokenFilesAndOptions) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("bad.csv"), "gpus,tp\n1,1\n");
  EXPECT_EQ(sandbox.run("validate --truth bad.csv --cluster b200").exit_code, 2);
  EXPECT_EQ(sandbox.run("validate --truth none.csv --cluster b200").exit_code, 2);
  EXPECT_EQ(sandbox.run("validate --cluster b200").exit_code, 2);
  EXPECT_EQ(sandbox.run("validate --truth traces/ground_truth/llama_b200.csv --cluster c300").exit_code, 2);
  testing::write_all(sandbox.path("own.csv"), testing::read_all(kFolder + "llama_b200.csv"));
  const RunResult same = sandbox.run("validate --truth own.csv --cluster b200 --rows own.csv");
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_NE(same.err.find("is also the file of '--truth'"), std::string::npos) << same.err;
}

TEST(Calibrate, WritesAClusterThatOtherCommandsRead) {
  const Sandbox sandbox;
  const std::string command =
      "calibrate --truth traces/ground_truth/llama_b200.csv --cluster b200 --format json --out ";
  const RunResult first = sandbox.run(command + "one.json");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const RunResult second = sandbox.run(command + "two.json");
  EXPECT_EQ(first.out, second.out);
  const json cluster = json::parse(testing::read_all(sandbox.path("one.json")));
  EXPECT_EQ(cluster["fit"]["sets"][0]["rows"], 12);
  EXPECT_EQ(cluster["fit"]["folds"], 5);
  const RunResult read =
      sandbox.run("validate --truth traces/ground_truth/llama_b200.csv --cluster one.json --format json");
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_NEAR(json::parse(read.out)["sets"][0]["time_mape_percent"].get<double>(),
              json::parse(first.out)["sets"][0]["in_sample_mape_percent"].get<double>(), 1e-6);
}

TEST(Calibrate, RefusesWrongOptions) {
  const Sandbox sandbox;
  const std::string truth = "calibrate --truth traces/ground_truth/llama_b200.csv --cluster b200 ";
  EXPECT_EQ(sandbox.run(truth + "--folds 1").exit_code, 2);
  EXPECT_EQ(sandbox.run(truth + "--seed -1").exit_code, 2);
  EXPECT_EQ(sandbox.run(truth + "--out missing/folder/c.json").exit_code, 2);
}

TEST(Calibrate, RecoversTheParametersThatMadeTheRows) {
  // Times predicted by a changed cluster; a fit that starts from the unchanged one predicts them again.
  ClusterSpec made = find_cluster("b200");
  const ClusterSpec start = made;
  made.gpu.gemm_efficiency *= 1.2;
  made.intra_node.bandwidth_bytes_per_s *= 0.8;
  TruthSet set = read_ground_truth(kFolder + "llama_b200.csv");
  for (TruthRow& row : set.rows) row.iteration = predict(truth_case(set.kind, row), made).iteration;
  const std::vector<PreparedSet> sets = {prepare(std::move(set))};
  const ClusterSpec fitted = fit(sets, {std::vector<bool>(12, true)}, start);
  EXPECT_LT(summarize(time_errors(sets[0].set, predict(sets[0], fitted))).mean, 0.01);
  EXPECT_GT(summarize(time_errors(sets[0].set, predict(sets[0], start))).mean, 0.08);
  EXPECT_NEAR(fitted.gpu.gemm_efficiency / made.gpu.gemm_efficiency, 1, 0.05);
  EXPECT_NEAR(fitted.intra_node.bandwidth_bytes_per_s / made.intra_node.bandwidth_bytes_per_s, 1, 0.15);
}

TEST(Calibrate, EstimatesAreCloseToSimulations) {
  const ClusterSpec cluster = find_cluster("a100-80g");
  const TruthSet set = read_ground_truth(kFolder + "megatron_a100_multi.csv");
  for (const TruthRow& row : set.rows) {
    const TruthCase run = truth_case(set.kind, row);
    const Program program = truth_program(run);
    const double ratio = estimate(run, skeleton(program), cluster) / predict(run, program, cluster).iteration;
    EXPECT_NEAR(ratio, 1, 0.05) << "row " << row.row;
  }
}

}  // namespace
}  // namespace dflop
