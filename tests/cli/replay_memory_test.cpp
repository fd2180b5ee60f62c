// What-ifs of a recording, and the memory of the GPUs that it was made on.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/run.hpp"

namespace dflop {
namespace replay_memory_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

/// Four stages on 16 GPUs. The 8 microbatches fit with 1f1b, but not with orders that hold many more.
std::string plan(const std::string& order, const std::string& recomputation) {
  return R"({"schema": "dflop.plan", "version": 1, "planner": "search",
  "model": "llava-ov-llama3-8b", "cluster": "a100-80g:2", "gbs": 64, "layout": "uniform",
  "encoder": {"tp": 2, "pp": 4, "dp": 2, "layers": [24, 3, 0, 0]},
  "llm": {"tp": 2, "pp": 4, "dp": 2, "layers": [0, 11, 12, 9]}, "microbatches": 8, "schedule": ")" +
         order + R"(", "recomputation": ")" + recomputation + R"(", "zero1": true, "sequence_parallel": true,
  "gradient_bucket_bytes": 26214400, "objective": "makespan"})";
}

class ReplayMemory : public ::testing::Test {
 protected:
  ReplayMemory() { record(); }

  void record() const {
    testing::write_all(sandbox_.path("p.json"), plan("1f1b", recomputation_));
    const std::string data = "--data traces/datasets/vision_mix.csv --iterations 2 --scheduler lpt";
    EXPECT_EQ(sandbox_.run("schedule --plan p.json --out s.json " + data).exit_code, 0);
    const RunResult recorded = sandbox_.run("simulate --plan p.json --schedule s.json --out t.json");
    EXPECT_EQ(recorded.exit_code, 0) << recorded.err;
  }

  RunResult simulate(const std::string& order, const std::string& options = "") const {
    testing::write_all(sandbox_.path("o.json"), plan(order, recomputation_));
    return sandbox_.run("simulate --plan o.json --schedule s.json --format json " + options);
  }
  RunResult replay(const std::string& options) const {
    return sandbox_.run("replay --trace t.json --iteration all --format json " + options);
  }

  /// Returns the text from "dflop: infeasible: " on standard error.
  static std::string problem(const RunResult& result) {
    const std::size_t begin = result.err.find("dflop: infeasible: ");
    return begin == std::string::npos ? "" : result.err.substr(begin);
  }

  Sandbox sandbox_;
  std::string recomputation_ = "none";
};

TEST_F(ReplayMemory, ReportsMissingMemoryLikeSimulate) {
  const RunResult expected = simulate("gpipe");
  ASSERT_EQ(expected.exit_code, 3) << expected.err;
  const RunResult found = replay("--pipeline-schedule gpipe");
  EXPECT_EQ(found.exit_code, 3);
  EXPECT_NE(problem(found), "");
  EXPECT_EQ(problem(found), problem(expected));
  EXPECT_EQ(replay("--pipeline-schedule zb-h2").exit_code, 3);
  // The last row counts: its conditions do not change memory. Without a change of order everything fits.
  EXPECT_EQ(replay("--pipeline-schedule gpipe --slow rank=0:2").exit_code, 3);
  EXPECT_EQ(replay("--slow rank=0:2").exit_code, 0);
  // A GPU of 192 GB has enough memory.
  EXPECT_EQ(replay("--pipeline-schedule gpipe --cluster b200:2").exit_code, 0);
}

// Weight parts come later than whole backwards, and recomputed activations stay until then.
TEST_F(ReplayMemory, OfSplitBackwardsEqualsSimulate) {
  for (const std::string mode : {"none", "selective", "full"}) {
    recomputation_ = mode;
    record();
    const json expected = json::parse(simulate("zb-h1").out);
    const json runs = json::parse(replay("--pipeline-schedule zb-h1").out)["runs"];
    EXPECT_EQ(runs.back()["peak_memory_bytes"], expected["peak_memory_bytes"]) << mode;
  }
}

TEST_F(ReplayMemory, LimitsEagerLikeSimulate) {
  const json expected = json::parse(simulate("eager-1f1b", "--out te.json").out);
  const RunResult result = replay("--pipeline-schedule eager-1f1b");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json runs = json::parse(result.out)["runs"];
  EXPECT_DOUBLE_EQ(runs.back()["makespan_s"].get<double>(), expected["iteration_s_mean"].get<double>());
  EXPECT_EQ(runs.back()["peak_memory_bytes"], expected["peak_memory_bytes"]);
  EXPECT_LE(runs.back()["makespan_s"].get<double>(), runs[1]["makespan_s"].get<double>());  // 1f1b fits
  EXPECT_GT(runs.back()["peak_memory_bytes"].get<double>(), runs[1]["peak_memory_bytes"].get<double>());
  // Its own recording has a known kind of order.
  const RunResult more =
      sandbox_.run("replay --trace te.json --iteration all --microbatches 12 --format json");
  EXPECT_EQ(more.exit_code, 0) << more.err;
}

TEST_F(ReplayMemory, NotesThatAnUnknownClusterDoesNotLimitEager) {
  json trace = json::parse(testing::read_all(sandbox_.path("t.json")));
  trace["made_by"].erase("cluster");
  testing::write_all(sandbox_.path("t.json"), trace.dump());
  const RunResult result = replay("--pipeline-schedule eager-1f1b");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("eager-1f1b runs without a memory limit"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("(--cluster)"), std::string::npos) << result.err;
  EXPECT_EQ(problem(result), "");
  EXPECT_EQ(replay("--pipeline-schedule gpipe").exit_code, 0);
  EXPECT_EQ(replay("--pipeline-schedule gpipe --cluster a100-80g:2").exit_code, 3);
}

// zb-v and eager-1f1b order each iteration by its batch, while 1f1b orders all alike. A user's order is
// fixed.
TEST_F(ReplayMemory, NotesThatFurtherIterationsHaveOtherOrders) {
  const auto note = [](const RunResult& result) {
    return result.err.find("o1.json has the steps of the first iteration") != std::string::npos;
  };
  EXPECT_TRUE(note(simulate("eager-1f1b", "--order-out o1.json")));
  EXPECT_FALSE(note(simulate("eager-1f1b", "--order o1.json --order-out o1.json")));
  EXPECT_FALSE(note(simulate("1f1b", "--order-out o1.json")));
}

}  // namespace replay_memory_test
}  // namespace dflop
