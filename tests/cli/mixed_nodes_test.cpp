// Nodes of several GPU types, named on the command line: plan, schedule and simulate.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tests/cli/run.hpp"

namespace dflop {
namespace mixed_nodes_test {

using nlohmann::json;
using testing::expect_error;
using testing::RunResult;
using testing::Sandbox;

struct MixedNodes : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override { testing::write_all(sandbox.path("d.csv"), testing::image_records()); }

  RunResult plan(const std::string& cluster, const std::string& options) {
    return sandbox.run("plan --data d.csv --model llava-ov-qwen2.5-7b --gbs 16 --iterations 1 --cluster " +
                       cluster + " " + options);
  }

  /// Plans by wish, schedules and simulates.
  RunResult simulate(const std::string& cluster) {
    const RunResult planned =
        plan(cluster, "--layout uniform --tp 8 --pp 2 --dp 1 --microbatches 8 --order 1f1b --out p.json");
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    EXPECT_EQ(sandbox.run("schedule --plan p.json --data d.csv --iterations 1 --out s.json").exit_code, 0);
    return sandbox.run("simulate --plan p.json --schedule s.json --format json");
  }

  /// Returns the third and fourth columns of the single row that 'dflop plan --format csv' prints.
  static std::pair<double, double> objective_and_bound(const std::string& csv) {
    std::istringstream row(csv.substr(csv.find('\n') + 1));
    std::vector<std::string> cells;
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    return {std::stod(cells.at(2)), std::stod(cells.at(3))};
  }

  json result(const std::string& cluster) { return json::parse(simulate(cluster).out); }
};

TEST_F(MixedNodes, AreAsFastAsTheStagesOnEach) {
  const json slow = result("a100-80g:2");
  const json mixed = result("a100-80g:1+h100:1");
  // Both clusters have the first type's links, so only the second stage is faster.
  const double slow_s = slow["iteration_s_mean"];
  const double mixed_s = mixed["iteration_s_mean"];
  EXPECT_LT(mixed_s, slow_s);
  EXPECT_GT(mixed_s, 0.4 * slow_s);
  // MFU is relative to 8 x 312 + 8 x 989 TFLOP/s instead of 16 x 312, with the same FLOP in each cluster's
  // time.
  const double expected = slow["mfu"].get<double>() * slow_s / mixed_s * (2 * 312.0) / (312 + 989);
  EXPECT_NEAR(mixed["mfu"], expected, 0.002 * expected);
  EXPECT_EQ(result("a100-80g:1+a100-80g:1")["iteration_s_mean"], slow["iteration_s_mean"]);
}

TEST_F(MixedNodes, TheSearchIsNoWorseThanOnOnlyTheSlowerNodes) {
  const RunResult slow = plan("a100-80g:2", "--planner search --budget 1 --out slow.json --format csv");
  const RunResult mixed =
      plan("a100-80g:1+h100:1", "--planner search --budget 1 --seed-plans slow.json --format csv");
  ASSERT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_NE(mixed.err.find("nodes of 1 A100-SXM4-80GB, 1 H100-SXM5-80GB"), std::string::npos) << mixed.err;
  const auto [objective, bound] = objective_and_bound(mixed.out);
  EXPECT_LE(objective, objective_and_bound(slow.out).first);
  EXPECT_LE(bound, objective);
}

// A rank has the memory of its own GPU. If a cluster file gives the H100 only 8 GiB, the H100 is too small,
// but the file's A100 is not.
TEST_F(MixedNodes, EachRankHasTheMemoryOfItsGpu) {
  ASSERT_EQ(simulate("a100-80g:1+h100:1").exit_code, 0);
  json h100 = json::parse(testing::read_all(DFLOP_SOURCE_DIR "/experiments/presets/clusters/h100.json"));
  json mixed = h100;
  mixed.erase("gpu");
  h100["gpu"]["memory_bytes"] = std::int64_t{8} << 30;
  mixed["nodes"] = {{{"count", 1}, {"gpu", "a100-80g"}},
                    {{"count", 1}, {"gpu", h100["gpu"]}, {"software", h100["software"]}}};
  testing::write_all(sandbox.path("c.json"), mixed.dump());
  json planned = json::parse(testing::read_all(sandbox.path("p.json")));
  planned["cluster"] = "c.json";
  planned.erase("made_by");
  testing::write_all(sandbox.path("p.json"), planned.dump());
  const RunResult result = sandbox.run("simulate --plan p.json --schedule s.json --mixed");
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_NE(result.err.find("out of memory, rank 8 ("), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("H100-SXM5-80GB) needs"), std::string::npos) << result.err;
}

TEST_F(MixedNodes, WrongNamesAreRejected) {
  expect_error(plan("a100-80g:1+h10:1", ""), {"unknown cluster 'h10'", "did you mean 'h100'"});
  expect_error(plan("a100-80g:1+", ""), {"cluster ''", "as a100-80g:15+h100:1"});
  expect_error(plan("a100-80g:1+h100:0", ""), {"a number of nodes from 1 to 4096", "found '0'"});
  expect_error(plan("a100-80g:4000+h100:97", ""), {"at most 4096 nodes in all", "found 4097"});
  ASSERT_EQ(simulate("a100-80g:1+h100:1").exit_code, 0);
  expect_error(sandbox.run("simulate --plan p.json --schedule s.json --stage-gpu 0=b200"),
               {"--stage-gpu", "GPUs of one type"});
}

TEST_F(MixedNodes, AFileSaysHowManyNodesItHas) {
  json file = json::parse(testing::read_all(DFLOP_SOURCE_DIR "/experiments/presets/clusters/h100.json"));
  file.erase("gpu");
  file["nodes"] = {{{"count", 1}, {"gpu", "a100-80g"}}, {{"count", 1}, {"gpu", "h100"}}};
  testing::write_all(sandbox.path("c.json"), file.dump());
  const std::string wish = "--layout uniform --tp 8 --pp 2 --dp 1 --microbatches 8 --format json";
  const RunResult all = plan("c.json", wish);
  ASSERT_EQ(all.exit_code, 0) << all.err;
  json counted = json::parse(plan("c.json:2", wish).out);
  counted["cluster"] = "c.json";
  EXPECT_EQ(counted, json::parse(all.out));
  expect_error(plan("c.json:3", wish), {"its file has 2 nodes", "found ':3'"});
  file["nodes"][1]["gpu"] = "h1000";
  testing::write_all(sandbox.path("c.json"), file.dump());
  expect_error(plan("c.json", wish), {"c.json", "nodes[1].gpu", "unknown cluster 'h1000'"});
}

}  // namespace mixed_nodes_test
}  // namespace dflop
