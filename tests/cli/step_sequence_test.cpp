// dflop import and replay on steps that begin before all ranks have ended the step before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"
#include "tests/traces/kineto_fixtures.hpp"

namespace dflop {
namespace step_sequence_test {

using nlohmann::json;
using testing::replayed_ms;
using testing::RunResult;
using testing::Sandbox;

/// A RangeText is the trace of one rank, whose ranges have a kernel each. Times are milliseconds; the host is
/// ahead of the device.
class RangeText {
 public:
  explicit RangeText(int rank)
      : text_(fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": 2}},)", rank)) {}

  /// Begins a step, of less than 100 calls.
  void step(int number) {
    calls_ = 100 * number;
    text_.x("user_annotation", fmt::format("ProfilerStep#{}", number), now(), "900", 1);
  }

  RangeText& kernel(const std::string& range, const std::string& name, double start, double end, int stream,
                    const std::string& args = "") {
    text_.x("user_annotation", range, now(), "15", 1);
    text_.launch(++launches_, now());
    text_.kernel(launches_, name, fmt::format("{:.3f}", 1000 * (kFirst + start)),
                 fmt::format("{:.3f}", 1000 * (end - start)), stream, args);
    return *this;
  }
  RangeText& computes(const std::string& range, double start, double end) {
    return kernel("dflop:" + range, "gemm", start, end, 7);
  }
  RangeText& message(const std::string& range, bool is_send, int peer, double start, double end) {
    return kernel(
        "dflop:" + range, "ncclDevKernel_SendRecv(x)", start, end, is_send ? 20 : 21,
        fmt::format(
            R"(, "Collective name": "{}", "dtype": "Float", "In msg nelems": 100, "Out msg nelems": 100,
                 "Group size": 2, "Process Group Name": "{}", "Process Group Ranks": "[0, 1]", "{} Rank": {})",
            is_send ? "send" : "recv", range.find("forward") != std::string::npos ? "f" : "b",
            is_send ? "Dst" : "Src", peer));
  }
  std::string text() const { return text_.text(); }

 private:
  static constexpr double kFirst = 5;  ///< when the device begins

  /// Returns when the host does the next thing: 10 us after the one before.
  std::string now() { return fmt::format("{}", 10 * ++calls_); }

  KinetoText text_;
  int calls_ = 0;
  int launches_ = 0;
};

// Two stages, one microbatch, three steps. A forward takes 10 ms, a backward 20, a message 1, the optimizer
// of rank 0 4 ms and that of rank 1 50 ms, which goes on when rank 0 begins the next step:
//   rank 0   F 0-10,            B 42-62, 62-66 | F 66-76,              B 122-142, 142-146 | F 146-156, ...
//   rank 1   F 11-21, B 21-41,     41-91       | F 91-101, B 101-121,     121-171         | F 171-181, ...
// The steps end at 91, 171 and 251. From rank 0's begin on each but the first would take 105.
void write_two_stages(const Sandbox& sandbox, int first_step = 0) {
  std::vector<RangeText> ranks = {RangeText(0), RangeText(1)};
  for (int s = first_step; s < 3; ++s) {
    const double first = s == 0 ? 0 : 80.0 * s - 14;    // rank 0 begins
    const double second = s == 0 ? 11 : 80.0 * s + 11;  // rank 1 begins its forward
    for (RangeText& rank : ranks) rank.step(s + 1);
    ranks[0].computes("forward stage=0 mb=0", first, first + 10);
    ranks[0].message("send_forward stage=0 mb=0", true, 1, first + 10, first + 11);
    ranks[0].message("receive_backward stage=0 mb=0", false, 1, first + 11, second + 31);
    ranks[0].computes("backward stage=0 mb=0", second + 31, second + 51);
    ranks[0].computes("optimizer_step stage=0", second + 51, second + 55);
    ranks[1].message("receive_forward stage=1 mb=0", false, 0, first + 5, first + 11);
    ranks[1].computes("forward stage=1 mb=0", second, second + 10);
    ranks[1].computes("backward stage=1 mb=0", second + 10, second + 30);
    ranks[1].message("send_backward stage=1 mb=0", true, 0, second + 30, second + 31);
    ranks[1].computes("optimizer_step stage=1", second + 30, second + 80);
  }
  for (int r = 0; r < 2; ++r) testing::write_all(sandbox.path(fmt::format("r{}.json", r)), ranks[r].text());
}

TEST(StepSequence, StepsOfAPipelineThatOverlapCountNoTimeTwice) {
  const Sandbox sandbox;
  write_two_stages(sandbox);
  const RunResult imported = sandbox.run("import --kineto 'r*.json' --out run.json --format json");
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_NE(imported.err.find("begin steps up to 25.000 ms before others have ended"), std::string::npos)
      << imported.err;
  const json steps = json::parse(imported.out)["pipeline"];
  ASSERT_EQ(steps.size(), 3u) << imported.out;
  for (int s = 0; s < 3; ++s) {
    EXPECT_NEAR(steps[s]["duration_s"].get<double>(), s == 0 ? 91e-3 : 80e-3, 1e-9) << s;
    EXPECT_NEAR(steps[s]["replayed_s"].get<double>(), s == 0 ? 91e-3 : 80e-3, 1e-9) << s;
  }
  const auto expect = [&](const std::string& options, const std::vector<double>& expected) {
    const std::vector<double> found = replayed_ms(sandbox, options);
    ASSERT_EQ(found.size(), expected.size()) << options;
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << options;
  };
  const double mean = 251.0 / 3;
  expect("", {mean, mean});
  // Rank 1 twice as fast ends its optimizer at 11 + 15 + 25 = 51, as rank 0 does: 11 + 15 + 1 + 24.
  expect("--slow rank=1:0.5", {mean, mean, 51});
  // Rank 0 half as fast: it takes 20 + 1 + 30 + 1 + 48 = 100 a step, and rank 1 ends 1 ms later in the first
  // and all others.
  expect("--slow rank=0:2", {mean, mean, 301.0 / 3});
  // One iteration alone is that of the sequence. Repetitions have their own; without jitter they are alike.
  const auto last_s = [&](const std::string& options) {
    return json::parse(sandbox.run("replay --trace run.json --format json " + options).out)["runs"]
        .back()["makespan_s"]
        .get<double>();
  };
  EXPECT_NEAR(last_s("--iteration 2"), 80e-3, 1e-9);
  EXPECT_NEAR(last_s("--iteration 2 --slow rank=0:2"), 100e-3, 1e-9);
  EXPECT_NEAR(last_s("--iteration all --slow rank=0:2 --repeat 3"), 301e-3 / 3, 1e-9);
  // What is written is such a sequence, too.
  ASSERT_EQ(sandbox.run("replay --trace run.json --iteration all --slow rank=0:2 --out slow.json").exit_code,
            0);
  const json again =
      json::parse(sandbox.run("replay --trace slow.json --iteration all --format json").out)["runs"];
  for (const json& run : again) EXPECT_NEAR(run["makespan_s"].get<double>(), 301e-3 / 3, 1e-9);
}

// Without its first step the record begins at 66, and rank 1, whose message came at 77, is in the step before
// until 91.
TEST(StepSequence, ARankThatBeginsLateInTheFirstStepWasInTheOneBefore) {
  const Sandbox sandbox;
  write_two_stages(sandbox, 1);
  const RunResult imported = sandbox.run("import --kineto 'r*.json' --out run.json --format json");
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  const json steps = json::parse(imported.out)["pipeline"];
  ASSERT_EQ(steps.size(), 2u) << imported.out;
  for (const json& step : steps) {
    EXPECT_NEAR(step["duration_s"].get<double>(), 80e-3, 1e-9);
    EXPECT_NEAR(step["replayed_s"].get<double>(), 80e-3, 1e-9);
  }
  for (const double makespan : replayed_ms(sandbox, "")) EXPECT_NEAR(makespan, 80, 1e-3);
}

}  // namespace step_sequence_test
}  // namespace dflop
