// Plans whose modules share GPUs, as a user sees them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/studies/explain.hpp"
#include "experiments/studies/what_if/sharing.hpp"
#include "sim/engine.hpp"
#include "tests/cli/run.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop {
namespace shared_plans_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kTarget = "--model llava-ov-llama3-8b --cluster h100:1 --gbs 16 ";
const std::string kData = "--data " DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv ";

/// Two forwards of 100 ns on one GPU that need 0.625 and 1 of its bandwidth. Both get half until the first
/// ends at 125. Then the second has 37.5 left and continues alone.
PricedProgram two_forwards() {
  PricedProgram priced = testing::make_program(
      {{{Op::forward, 0, 0, 0}, {Op::backward, 0, 0, 0}}, {{Op::forward, 1, 0, 0}, {Op::backward, 1, 0, 0}}},
      {}, {});
  priced.program.shared_gpus = 1;
  priced.costs.instruction[0] = priced.costs.instruction[2] = Nanoseconds(100);
  priced.costs.bandwidth = {0.625, 0, 1, 0};
  return priced;
}

TEST(Sharing, ReportsOverlapsAndSlowdowns) {
  const PricedProgram priced = two_forwards();
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans);
  const nlohmann::ordered_json rows = json_of(explain_sharing(priced.program, priced.costs, timeline));
  ASSERT_EQ(rows.size(), 2U);
  const auto expect_row = [&](std::size_t r, const std::string& module, double busy, double longer) {
    EXPECT_EQ(rows[r]["module"], module);
    EXPECT_DOUBLE_EQ(rows[r]["busy_s"].get<double>(), busy * 1e-9);
    EXPECT_DOUBLE_EQ(rows[r]["beside_s"].get<double>(), 125e-9);
    EXPECT_DOUBLE_EQ(rows[r]["beside"].get<double>(), 125 / busy);
    EXPECT_DOUBLE_EQ(rows[r]["longer_s"].get<double>(), longer * 1e-9);
    EXPECT_DOUBLE_EQ(rows[r]["longer"].get<double>(), longer / busy);
  };
  expect_row(0, "encoder", 125, 25);
  expect_row(1, "llm", 163, 63);
  PricedProgram own = priced;
  own.program.shared_gpus = 0;
  EXPECT_TRUE(explain_sharing(own.program, own.costs, timeline).rows.empty());
}

// The second pauses from 50 to 80. The pause is not compute, and the second uses no bandwidth in it: the
// first, which has done 40, does 30 until then, and the other 30 in 37.5, to 117.5, rounded up. The second
// has done 25 until 50 and 19 until 118; it does the other 56 alone, to 174: 144 of compute, 88 of it
// alongside the first.
TEST(Sharing, LeavesPausesOut) {
  const PricedProgram priced = two_forwards();
  Conditions conditions;
  conditions.pauses = {{1, Nanoseconds(50), Nanoseconds(30)}};
  const Timeline timeline = simulate(priced.program, priced.costs, Detail::spans, conditions);
  const nlohmann::ordered_json rows =
      json_of(explain_sharing(priced.program, priced.costs, timeline, conditions));
  EXPECT_DOUBLE_EQ(rows[0]["busy_s"].get<double>(), 118e-9);
  EXPECT_DOUBLE_EQ(rows[1]["busy_s"].get<double>(), 144e-9);
  EXPECT_DOUBLE_EQ(rows[1]["beside_s"].get<double>(), 88e-9);
  EXPECT_DOUBLE_EQ(rows[1]["longer_s"].get<double>(), 44e-9);
}

// Ranks 0 and 1 need 10 and 30 bytes on their GPUs, and ranks 2 and 3 (of the LLM) 50 and 40 on the same
// GPUs: 60 and 70.
TEST(SharedMemory, OfAGpuSumsBothRanks) {
  Timeline timeline;
  timeline.shared_gpus = 2;
  timeline.stages = {"encoder 0", "llm 0"};
  for (const std::int64_t bytes : {10, 30, 50, 40}) {
    GroupUsage group;
    group.first_rank = static_cast<std::int32_t>(timeline.groups.size());
    group.stage = group.first_rank / 2;
    group.peak_memory = Bytes{bytes};
    timeline.groups.push_back(group);
  }
  EXPECT_EQ(gpu_memory(timeline), (std::vector<Bytes>{{60}, {70}}));
  EXPECT_EQ(peak_memory(timeline), Bytes{70});
  EXPECT_EQ(fullest_rank({&timeline, 1}).group, 3U);
  EXPECT_NE(describe_fullest_rank({&timeline, 1}).find("of the other rank on its GPU"), std::string::npos);
  timeline.shared_gpus = 0;
  EXPECT_EQ(peak_memory(timeline), Bytes{50});
  EXPECT_EQ(fullest_rank({&timeline, 1}).group, 2U);
}

class SharedPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    const RunResult planned = sandbox.run("plan " + kTarget + kData +
                                          "--iterations 1 --budget 20000 --layout shared --out plan.json");
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    const RunResult scheduled = sandbox.run("schedule --plan plan.json " + kData +
                                            "--iterations 1 --scheduler lpt --out schedule.json");
    ASSERT_EQ(scheduled.exit_code, 0) << scheduled.err;
  }

  RunResult simulate(const std::string& options) const {
    return sandbox.run("simulate --plan plan.json --schedule schedule.json " + options);
  }

  Sandbox sandbox;
};

TEST_F(SharedPlans, AreSimulatedAndExplained) {
  const json plan = json::parse(testing::read_result(sandbox.path("plan.json")));
  EXPECT_EQ(plan["layout"], "shared");
  EXPECT_GT(plan["encoder_share"], 0);
  EXPECT_LT(plan["encoder_share"], 1);
  const RunResult run = simulate("--explain --format json --perfetto trace.json --out timeline.json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["groups"].back()["first_rank"].get<int>() / 8, 1);  // two ranks on each of 8 GPUs
  const json& sharing = result["explain"]["sharing"];
  ASSERT_EQ(sharing.size(), 2U);
  EXPECT_EQ(sharing[0]["beside_s"], sharing[1]["beside_s"]);
  EXPECT_GT(sharing[0]["beside_s"], 0);
  for (const json& module : sharing) {
    EXPECT_LE(module["beside"], 1);
    EXPECT_GE(module["longer"], 0);
    EXPECT_LE(module["busy_s"], result["explain"]["makespan_s"]);
  }
  const json fullest = result["fullest_rank"];
  EXPECT_GT(fullest["gpu_memory_bytes"], fullest["peak_memory_bytes"]);
  EXPECT_EQ(result["peak_memory_bytes"], fullest["gpu_memory_bytes"]);
  const std::string trace = testing::read_all(sandbox.path("trace.json"));
  EXPECT_NE(trace.find("\"GPU 7\""), std::string::npos);
  EXPECT_EQ(trace.find("\"GPU 8\""), std::string::npos);
  EXPECT_NE(simulate("--explain").out.find("overlap of the modules on shared GPUs"), std::string::npos);
}

// A what-if that cannot shorten a run does not. A replay of the run takes exactly as long: its durations
// already include the overlap with others, to the nanosecond.
TEST_F(SharedPlans, RunUnderConditions) {
  const auto seconds = [&](const std::string& options) {
    const RunResult run = simulate("--format json " + options);
    EXPECT_EQ(run.exit_code, 0) << options << run.err;
    return json::parse(run.out)["iterations_s"][0].get<double>();
  };
  const double plain = seconds("--out timeline.json");
  const RunResult replayed = sandbox.run("replay --trace timeline.json --format json");
  ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
  EXPECT_EQ(json::parse(replayed.out)["runs"][1]["makespan_s"].get<double>(), plain) << replayed.out;
  EXPECT_GT(seconds("--slow rank=0:2"), plain);
  EXPECT_GT(seconds("--pause rank=8:0.1:2"), plain);
  EXPECT_GE(seconds("--cores 4"), plain);
  EXPECT_GT(seconds("--network contention"), 0.9 * plain);
}

TEST_F(SharedPlans, AreRejectedByCommandsThatCannotRunThem) {
  testing::expect_error(simulate("--stage-gpu 'llm 0=a100-80g'"), {"--stage-gpu", "share GPUs"});
  testing::expect_error(sandbox.run("export --plan plan.json --to megatron-mimo"),
                        {"layout", "disaggregated", "shared"}, 3);
  testing::expect_error(sandbox.run("plan " + kTarget + kData + "--planner megatron --no-shared"),
                        {"--no-shared"});
  testing::expect_error(sandbox.run("plan " + kTarget + kData + "--layout shared --no-shared"),
                        {"option '--no-shared'", "cannot be combined with '--layout shared'"});
}

}  // namespace shared_plans_test
}  // namespace dflop
