// dflop check difference alternates live runs, compares them with predictions, gives a verdict for each, and
// reports bad input with one clear error.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace verify_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

struct Verify : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override {
    testing::write_all(sandbox.path("d.csv"), testing::image_records());
    const RunResult plan = sandbox.run(
        "plan --data d.csv --model tiny-vlm --cluster a100-80g:1 --gbs 8 --layout uniform --tp 1 --pp 2 --dp 1 "
        "--microbatches 4 --order 1f1b --out p.json");
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
  }
  RunResult verify(const std::string& options) {
    const bool measures = options.find("--trace") == std::string::npos;
    return sandbox.run(std::string("check difference --plans p.json --data d.csv ") +
                       (measures ? "--budget-s 0.2 " : "") + options);
  }
};

TEST_F(Verify, ReportsASlowRank) {
  const RunResult result = verify("--slow 0:10 --steps 12 --warm-up 1 --format json --out v");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["schema"], "dflop.verification");
  const auto& verdict = report["verdicts"].at(0);
  EXPECT_EQ(verdict["name"], "p, rank 0 x 10");
  EXPECT_EQ(verdict["against"], "p");
  // One of the two ranks computes ten times as long, so no order hides all of its compute behind the other. A
  // test cannot require a size, as a machine may be busy while the profile is measured.
  EXPECT_GT(verdict["predicted"], 0);
  EXPECT_LE(verdict["measured_low"], verdict["measured"]);
  EXPECT_LE(verdict["measured"], verdict["measured_high"]);
  EXPECT_EQ(report["variants"].size(), 2u);
  for (const auto& variant : report["variants"]) {
    EXPECT_EQ(variant["measured_steps_s"].size(), 12u);
    EXPECT_EQ(variant["predicted_steps_s"].size(), 12u);
  }
  const std::string page = testing::read_all(sandbox.path("v/report.html"));
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("command   dflop check difference --plans p.json"), std::string::npos);
  const json file = json::parse(testing::read_all(sandbox.path("v/verify.json")));
  EXPECT_EQ(file["made_by"]["model"]["name"], "tiny-vlm");
  EXPECT_EQ(json::parse(testing::read_result(sandbox.path("v/verify.json"))), report);
}

TEST_F(Verify, PredictsOrdersFromARecording) {
  ASSERT_EQ(sandbox.run("train --plan p.json --data d.csv --steps 4 --record r.json").exit_code, 0);
  const RunResult result =
      verify("--trace r.json --orders 1f1b,gpipe,zb-h1 --steps 10 --warm-up 0 --format json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  EXPECT_EQ(report["verdicts"].size(), 2u);
  EXPECT_EQ(report["verdicts"][1]["name"], "zb-h1");
  EXPECT_NE(result.err.find("r.json:\n  made by"), std::string::npos) << result.err;
}

TEST_F(Verify, RejectsRunsThatCannotBeCompared) {
  testing::expect_error(verify(""), {"at least two things to compare", "--orders", "--slow"});
  testing::expect_error(verify("--orders 1f1b,gpip"), {"--orders", "gpip", "did you mean 'gpipe'"});
  testing::expect_error(verify("--slow 0"), {"--slow", "RANK:FACTOR"});
  testing::expect_error(verify("--slow 0:0.5"), {"--slow", "from 1 to 100"});
  testing::expect_error(verify("--orders 1f1b,gpipe --steps 4"), {"--steps", "10"});
  testing::expect_error(verify("--orders 1f1b,gpipe --trace none.json"), {"none.json"});
  testing::expect_error(verify("--orders 1f1b,gpipe --trace a --profile b"),
                        {"--trace", "cannot be combined with '--profile'"});
  testing::expect_error(verify("--slow 0.9:2"), {"--slow", "RANK:FACTOR"});
  testing::expect_error(verify("--orders 1f1b,gpipe --trace a --budget-s 1"),
                        {"--budget-s", "found '--trace'"});
  testing::expect_error(sandbox.run("check difference --plans p.json q.json --data d.csv"), {"q.json"});
}

TEST_F(Verify, RejectsARecordingOfAnotherDevice) {
  ASSERT_EQ(sandbox.run("schedule --plan p.json --data d.csv --iterations 2 --out s.json").exit_code, 0);
  ASSERT_EQ(sandbox.run("simulate --plan p.json --schedule s.json --out sim.json").exit_code, 0);
  testing::expect_error(verify("--orders 1f1b,gpipe --steps 10 --trace sim.json"),
                        {"sim.json", "device 'host'", "found one of 'simulated'", "--mixed"});
}

TEST_F(Verify, RejectsAMissingRank) {
  const RunResult result = verify("--slow 7:2 --steps 10");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("begins a tp group of the first plan: 0, 1, found '7'"), std::string::npos)
      << result.err;
}

}  // namespace verify_test
}  // namespace dflop
