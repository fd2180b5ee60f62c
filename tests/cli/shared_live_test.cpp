// Live plans that share devices, from the command line: train, record, resume, profile, predict.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"
#include "tests/cli/shared_plan.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/specs.hpp"

namespace dflop {
namespace shared_live_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

struct SharedLive : ::testing::Test {
  Sandbox sandbox;

  SharedLive() {
    testing::write_all(sandbox.path("small.csv"), testing::image_records());
    write_plan("half.json", 0.5);
  }

  void write_plan(const std::string& file, double share) const {
    testing::write_all(sandbox.path(file), to_json(testing::shared_plan_of_one_device(share)));
  }

  RunResult succeed(const std::string& command) {
    RunResult result = sandbox.run(command);
    EXPECT_EQ(result.exit_code, 0) << command << ": " << result.err;
    return result;
  }
  std::vector<double> losses(const std::string& options) {
    std::vector<double> all;
    const RunResult result =
        succeed("train --format json --data small.csv --plan half.json --device-cores 2 " + options);
    const json steps = testing::rows_of(result.out);
    for (const json& step : steps) all.push_back(step["loss"]);
    return all;
  }
};

/// Neither a checkpoint in between nor another number of cores changes a bit. Another share changes the costs
/// of samples and so which samples are summed together.
TEST_F(SharedLive, ResumesOnOtherCoresAndUnderAnotherShare) {
  const std::vector<double> whole = losses("--steps 4");
  ASSERT_EQ(whole.size(), 4U);
  EXPECT_EQ(losses("--steps 2 --checkpoint run"), (std::vector<double>(whole.begin(), whole.begin() + 2)));
  write_plan("other.json", 0.7);
  const std::string go_on =
      "train --format json --data small.csv --device-cores 3 --checkpoint run --resume ";
  const json third = testing::rows_of(succeed(go_on + "--plan half.json --steps 3").out);
  ASSERT_EQ(third.size(), 1U);
  EXPECT_EQ(third[0]["loss"].get<double>(), whole[2]);
  const json fourth = testing::rows_of(succeed(go_on + "--plan other.json --steps 4").out);
  ASSERT_EQ(fourth.size(), 1U);
  EXPECT_NEAR(fourth[0]["loss"].get<double>(), whole[3], 1e-5 * whole[3]);
}

TEST_F(SharedLive, IsRecordedAndReplayed) {
  losses("--steps 3 --record run.json");
  const json recorded = json::parse(testing::read_all(sandbox.path("run.json")))["iterations"][0];
  EXPECT_EQ(recorded.value("shared_gpus", 0), 1);
  EXPECT_EQ(recorded["groups"]["first_rank"], (json{0, 1}));
  succeed("replay --trace run.json --iteration 2 --perfetto trace.json");
  const std::string trace = testing::read_all(sandbox.path("trace.json"));
  for (const char* name : {"GPU 0", "rank 0 ", "rank 1 "}) {
    EXPECT_NE(trace.find(name), std::string::npos) << name;
  }
}

TEST_F(SharedLive, NamesTheCoresOfItsRanks) {
  write_plan("quarter.json", 0.25);
  const RunResult run = succeed("train --steps 1 --data small.csv --plan quarter.json --device-cores 4");
  EXPECT_NE(run.err.find("on each of 1 devices the encoder has 1 core, the LLM 3 cores"), std::string::npos)
      << run.err;
}

TEST_F(SharedLive, NeedsCoresToShare) {
  const auto refused = [&](const std::string& options, std::initializer_list<std::string> words) {
    testing::expect_error(sandbox.run("train --steps 1 --data small.csv --plan half.json " + options),
                          std::vector<std::string>(words));
  };
  refused("", {"key 'layout'", "expected --device-cores 2 or more, found 1"});
  refused("--device-cores 0", {"option '--device-cores': expected a whole number from 1"});
}

/// Tables for half of two cores predict the plan. Tables for whole devices do not, and the error says how to
/// get the missing ones.
TEST_F(SharedLive, IsPredictedFromTablesOfParts) {
  const std::string measure =
      "profile --model tiny-vlm --budget-s 0.1 --most-tokens 64 --device-cores 2 --out p.json ";
  succeed(measure);
  const std::string train =
      "train --steps 2 --format json --data small.csv --plan half.json --device-cores 2 "
      "--profile p.json";
  testing::expect_error(sandbox.run(train),
                        {"tables of tp 1 on 1/2 of a device, which the profile lacks", "--shares 1/2,1"});
  succeed(measure + "--shares 0.4999999,1/2,1 --resume");  // the same core
  const ProfileTables tables = parse_profile_tables(testing::read_all(sandbox.path("p.json")), "p.json");
  ASSERT_EQ(tables.tp.size(), 2U);
  EXPECT_EQ(tables.quanta, 2);
  EXPECT_EQ(tables.tp[0].quanta, 1);
  const json steps = testing::rows_of(succeed(train).out);
  for (const json& step : steps) EXPECT_GT(step["predicted_s"].get<double>(), 0);
  // On a machine with fewer than three cores, an additional note says so.
  const RunResult other =
      sandbox.run("train --steps 2 --data small.csv --plan half.json --device-cores 3 --profile p.json");
  EXPECT_EQ(other.exit_code, 2);
  for (const char* part : {"error: p.json", "number of cores", "expected '3', found '2'"})
    EXPECT_NE(other.err.find(part), std::string::npos) << other.err;
}

TEST_F(SharedLive, SharesAreWholeCores) {
  const auto refused = [&](const std::string& shares, const std::string& expected) {
    testing::expect_error(sandbox.run("profile --model tiny-vlm --shares " + shares),
                          {"option '--shares': expected " + expected});
  };
  refused("1/2", "--device-cores 2 or more");
  for (const char* shares : {"1/3", "1e-7", "0.9999999"})
    refused(std::string(shares) + " --device-cores 2",
            "parts that are whole numbers of the 2 cores of "
            "--device-cores");
  for (const char* shares : {"0", "2", "1/0", "a", "1/2,", "3/2"}) {
    refused(std::string(shares) + " --device-cores 2", "parts of a device above 0 and up to 1");
  }
}

}  // namespace shared_live_test
}  // namespace dflop
