// Measured prices replace those derived from a cluster's GPU and links.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/error.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/named_profile.hpp"
#include "tests/cli/run.hpp"
#include "tests/traces/profile_fixtures.hpp"
#include "traces/files/specs.hpp"

namespace dflop {
namespace profile_option_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

/// A complete profile of tp 1 prices stages of tp 1 as ProfiledCostModel does. Other stages need more memory
/// than any GPU has, so planners exclude them.
TEST(MeasuredCost, PricesMeasuredStagesAndExcludesOthers) {
  ProfileTables profile = fixtures::known_profile();
  const ProfiledCostModel known(profile);
  const Bytes any_gpu{std::int64_t{1} << 40};
  Stage stage;
  stage.llm_layers = 2;
  stage.dp = 2;
  Work work;
  work.llm = {1, 64, 64 * 64};
  const auto cost = measured_cost(profile);
  EXPECT_EQ(cost->compute(Op::forward, stage, work), known.compute(Op::forward, stage, work));
  EXPECT_EQ(cost->activation(stage, work), known.activation(stage, work));
  EXPECT_EQ(cost->model_state(stage), known.model_state(stage));
  EXPECT_LT(cost->model_state(stage).parameters, any_gpu);
  Stage split = stage;
  split.tp = 2;
  EXPECT_GT(cost->model_state(split).parameters, any_gpu) << "tp 2 was not measured";
  EXPECT_GT(cost->compute(Op::forward, split, work), 100 * known.compute(Op::forward, stage, work));
  profile.all_reduce.clear();
  const auto alone = measured_cost(profile);
  EXPECT_GT(alone->model_state(stage).parameters, any_gpu) << "no sum over dp was measured";
  stage.dp = 1;
  EXPECT_LT(alone->model_state(stage).parameters, any_gpu);
}

/// Patches take 1 us per token, all of it host time here: 100 us in the first of two forwards.
TEST(MeasuredCost, ShowsTheHostInTheFirstForward) {
  ProfileTables profile = fixtures::known_profile();
  for (ProfilePoint& p : profile.tp[0].of(ProfileUnit::patches)) p.host_s = p.forward_s;
  Program program;
  Stage stage;
  stage.encoder_layers = 2;
  program.stages = {stage};
  program.works = {{{1, 100, 1000}, {}}};
  program.instructions = {{Op::forward, 0, 0, 0}, {Op::forward, 0, 1, 0}};
  program.groups = {{0, 1, 0, 0, 0, 2}};
  const std::vector<Nanoseconds> times = measured_cost(profile)->price(program).instruction;
  EXPECT_EQ(times[0] - times[1], Nanoseconds(100'000));
}

/// Sounds of 512 tokens need 16 times the measured 32.
TEST(MeasuredCost, NamesTheUnitThatAProfileDoesNotReach) {
  const ProfiledCostModel cost(fixtures::as_of_gpu(fixtures::known_hearing_profile(), 32));
  Stage stage;
  stage.encoder_layers = 2;
  stage.connector = true;
  const ProfileReach reach = cost.reach(stage, {{1, 32, 32, 0, {8, 512, 512}}, {}});
  try {
    require_reach(cost, reach, "p.json", false);
    ADD_FAILURE() << "16 times as many tokens";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("the unit 'second_patches' was measured up to 16 tokens"),
              std::string::npos)
        << error.message();
  }
}

// Options for links and collectives have no effect if both were measured, except on the shared links of
// contention.
TEST(ProfileOption, RejectsOptionsOfLinksThatWereMeasured) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("small.csv"), testing::image_records());
  ProfileTables profile = fixtures::known_profile();
  profile.model = profiled_model(find_model("tiny-vlm"));
  testing::write_all(sandbox.path("p.json"), to_json(profile));
  const std::string data = " --data small.csv --iterations 2 --profile p.json ";
  const std::string plan = "plan --model tiny-vlm --cluster a100-80g:1 --gbs 8" + data;
  ASSERT_EQ(sandbox.run(plan + "--out plan.json").exit_code, 0);
  const std::string schedule = "schedule --plan plan.json --scheduler lpt" + data;
  ASSERT_EQ(sandbox.run(schedule + "--out s.json").exit_code, 0);
  const std::string simulate = "simulate --plan plan.json --schedule s.json --profile p.json ";
  for (const std::string& run : {plan, schedule, simulate}) {
    testing::expect_error(sandbox.run(run + "--inter-node-bandwidth x2"),
                          {"'--inter-node-bandwidth'", "'--profile' has measured times"});
  }
  testing::expect_error(sandbox.run(simulate + "--collectives ring"), {"'--collectives'"});
  const auto seconds = [&](const std::string& options) {
    const RunResult result = sandbox.run(simulate + "--network contention --format json " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out)["iteration_s_mean"].get<double>();
  };
  EXPECT_GT(seconds("--intra-node-bandwidth x0.0001"), seconds(""));
}

// Only one device was measured, so a cluster of two types is rejected. A replay that needs a tp missing from
// the profile says so and uses the analytic model instead.
TEST(ProfileOption, IsOfOneTypeOfGpuAndOnlyHelpsAReplay) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("small.csv"), testing::image_records());
  ProfileTables profile = fixtures::known_profile();
  profile.model = profiled_model(find_model("tiny-vlm"));
  testing::write_all(sandbox.path("p.json"), to_json(profile));
  const std::string plan = "plan --model tiny-vlm --data small.csv --iterations 1 --gbs 8 ";
  testing::expect_error(sandbox.run(plan + "--cluster a100-80g:1+h100:1 --profile p.json"),
                        {"p.json", "one GPU type", "found 2"});
  for (const std::string tp : {"1", "2"}) {
    ASSERT_EQ(sandbox
                  .run(plan + "--cluster a100-80g:1 --layout uniform --pp 1 --dp 1 --tp " + tp + " --out p" +
                       tp + ".json")
                  .exit_code,
              0);
    ASSERT_EQ(sandbox
                  .run("schedule --plan p" + tp +
                       ".json --data small.csv --iterations 1 --scheduler lpt --out s" + tp + ".json")
                  .exit_code,
              0);
  }
  ASSERT_EQ(sandbox.run("simulate --plan p1.json --schedule s1.json --out t.json").exit_code, 0);
  const std::string replay = "replay --trace t.json --plan p2.json --schedule s2.json --format json";
  const RunResult plain = sandbox.run(replay);
  const RunResult helped = sandbox.run(replay + " --profile p.json");
  ASSERT_EQ(helped.exit_code, 0) << helped.err;
  EXPECT_NE(helped.err.find("not in the recording: p.json: expected what the plan needs, tp 2"),
            std::string::npos)
      << helped.err;
  EXPECT_EQ(json::parse(helped.out)["runs"].back()["makespan_s"],
            json::parse(plain.out)["runs"].back()["makespan_s"]);
}

}  // namespace profile_option_test
}  // namespace dflop
