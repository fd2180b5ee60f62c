// dflop train takes a plan by wish and summarizes its steps at the end.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace train_wish_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

struct TrainWish : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override { testing::write_all(sandbox.path("d.csv"), testing::image_records()); }
  RunResult train(const std::string& options) {
    return sandbox.run("train --data d.csv --steps 3 --gbs 8 --format json " + options);
  }
};

TEST_F(TrainWish, RunsTheRequestedPlan) {
  const RunResult result =
      train("--layout uniform --tp 1 --pp 2 --dp 1 --microbatches 4 --order zb-h1 --record r.json");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("dflop: plan: tp1 pp2 dp1 mb4 zb-h1\n"), std::string::npos) << result.err;
  const json record = json::parse(testing::read_all(sandbox.path("r.json")));
  EXPECT_EQ(record["iterations"][0]["groups"]["first_rank"], json({0, 1}));
}

// An order with several chunks has 2 unless --chunks says otherwise, and the search alone makes colocated
// plans.
TEST_F(TrainWish, SearchesWithAllOrders) {
  const std::string small = "--tp 1 --dp 1 --microbatches 4 --order ";
  for (const auto& [order, plan] : {std::pair{"interleaved --pp 2", "tp1 pp2 dp1 mb4 interleaved x2"},
                                    {"interleaved --pp 1 --chunks 3", "tp1 pp1 dp1 mb4 interleaved x3"},
                                    {"encoder-in-bubbles --pp 2", "tp1 pp2 dp1 mb4 encoder-in-bubbles"}}) {
    const RunResult result = train(small + order);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find(std::string("dflop: plan: ") + plan + "\n"), std::string::npos) << result.err;
  }
}

TEST_F(TrainWish, NamesTheOptionThatRulesOutAllPlans) {
  const RunResult result = train("--tp 3");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("no plan satisfies these options: --tp 3 does not divide"), std::string::npos)
      << result.err;
}

TEST_F(TrainWish, OptionsDoNotCombineWithAPlanFile) {
  testing::expect_error(train("--plan p.json --pp 2"), {"--pp", "cannot be combined with '--plan'"});
}

TEST_F(TrainWish, SummarizesTheStepsWithoutTheFirst) {
  const RunResult result = train("");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json steps = testing::rows_of(result.out);
  const double second = steps[1]["iteration_s"];
  const double third = steps[2]["iteration_s"];
  char expected[64];
  // For two steps, the 95th percentile by nearest rank is the longer one.
  std::snprintf(expected, sizeof expected, "dflop: steps 2 to 3: %.4f s in the mean, %.4f s at",
                (second + third) / 2, std::max(second, third));
  EXPECT_NE(result.err.find(expected), std::string::npos) << expected << "\n" << result.err;
  EXPECT_NE(result.err.find(" tokens/s"), std::string::npos) << result.err;
}

TEST_F(TrainWish, AsksForDataIfTheDefaultIsMissing) {
  std::filesystem::remove(sandbox.path("traces"));
  testing::expect_error(sandbox.run("train --steps 1"),
                        {"option '--data'", "vision_mix.csv is not in this folder"});
}

}  // namespace train_wish_test
}  // namespace dflop
