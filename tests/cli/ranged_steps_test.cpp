// dflop import and replay on steps with ranges: steps that begin before all ranks have ended the previous
// step, and steps of ranks that all do the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run.hpp"
#include "tests/traces/kineto_fixtures.hpp"

namespace dflop {
namespace ranged_steps_test {

using nlohmann::json;
using testing::expect_error;
using testing::replayed_ms;
using testing::RunResult;
using testing::Sandbox;

/// A RangeText is the trace of one rank, with one kernel per range. Times are milliseconds. The host is ahead
/// of the device.
class RangeText {
 public:
  explicit RangeText(int rank)
      : text_(fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": 2}},)", rank)) {}

  /// Begins a step of fewer than 100 calls.
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
  RangeText& sum(double start, double end, int step) {
    return kernel("dflop:all_reduce stage=0", "ncclDevKernel_AllReduce_x", start, end, 20,
                  collective_args(step));
  }
  std::string text() const { return text_.text(); }

 private:
  static constexpr double kFirst = 5;  ///< when the device begins

  /// Returns the time of the host's next action: 10 us after the previous one.
  std::string now() { return fmt::format("{}", 10 * ++calls_); }

  KinetoText text_;
  int calls_ = 0;
  int launches_ = 0;
};

// Two stages, one microbatch, three steps. A forward takes 10 ms, a backward 20, a message 1. The optimizer
// of rank 0 takes 4 ms. That of rank 1 takes 50 ms and is still running when rank 0 begins the next step:
//   rank 0   F 0-10,            B 42-62, 62-66 | F 66-76,              B 122-142, 142-146 | F 146-156, ...
//   rank 1   F 11-21, B 21-41,     41-91       | F 91-101, B 101-121,     121-171         | F 171-181, ...
// The steps end at 91, 171 and 251. Counted from rank 0's start, each but the first would take 105.
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

TEST(RangedSteps, StepsOfAPipelineThatOverlapCountNoTimeTwice) {
  const Sandbox sandbox;
  write_two_stages(sandbox);
  const RunResult imported = sandbox.run("import --kineto 'r*.json' --out run.json --format json");
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_NE(imported.err.find("begin steps up to 25.000 ms before other ranks end the previous"),
            std::string::npos)
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
  // Rank 1 twice as fast ends its optimizer at 11 + 15 + 25 = 51, as does rank 0: 11 + 15 + 1 + 24.
  expect("--slow rank=1:0.5", {mean, mean, 51});
  // Rank 0 at half speed takes 20 + 1 + 30 + 1 + 48 = 100 per step, and rank 1 ends 1 ms later in the first
  // step and all others.
  expect("--slow rank=0:2", {mean, mean, 301.0 / 3});
  // A single iteration equals that in the sequence. Repetitions have their own sequence; without jitter they
  // are equal.
  const auto last_s = [&](const std::string& options) {
    return json::parse(sandbox.run("replay --trace run.json --format json " + options).out)["runs"]
        .back()["makespan_s"]
        .get<double>();
  };
  EXPECT_NEAR(last_s("--iteration 2"), 80e-3, 1e-9);
  EXPECT_NEAR(last_s("--iteration 2 --slow rank=0:2"), 100e-3, 1e-9);
  EXPECT_NEAR(last_s("--iteration all --slow rank=0:2 --repeat 3"), 301e-3 / 3, 1e-9);
  // The written file is such a sequence too.
  ASSERT_EQ(sandbox.run("replay --trace run.json --iteration all --slow rank=0:2 --out slow.json").exit_code,
            0);
  const json again =
      json::parse(sandbox.run("replay --trace slow.json --iteration all --format json").out)["runs"];
  for (const json& run : again) EXPECT_NEAR(run["makespan_s"].get<double>(), 301e-3 / 3, 1e-9);
}

// Without its first step, the recording begins at 66. Rank 1, whose message came at 77, is in the previous
// step until 91.
TEST(RangedSteps, ARankThatBeginsLateWasInThePreviousStep) {
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

// Two replicas, two steps: 30 ms forward, 60 backward, a sum of 5 and 6 in the optimizer. Rank 1 takes 1.5
// times as long:
//   rank 0   0-90,  sum 90-140, 140-146 | 146-236, sum 236-289, 289-295
//   rank 1   0-135, sum 135-140, 140-149 | 149-284, sum 284-289, 289-298
// Rank 0 waits 45 of 146 and 48 of 149 ms. Mended, a step takes 101 of 149.
struct Replica {
  double forward, backward, sum, optimizer, end;
};
Replica replica(int rank, int step) {
  const double begin = step * (rank == 0 ? 146.0 : 149.0);
  const double factor = rank == 0 ? 1 : 1.5;
  return {begin, begin + 30 * factor, begin + 90 * factor, 149.0 * step + 140,
          149.0 * step + 140 + 6 * factor};
}

void write_replicas(const Sandbox& sandbox) {
  for (int r = 0; r < 2; ++r) {
    RangeText text(r);
    for (int s = 0; s < 2; ++s) {
      const Replica at = replica(r, s);
      text.step(s + 1);
      text.computes("forward stage=0 mb=0", at.forward, at.backward);
      text.computes("backward stage=0 mb=0", at.backward, at.sum);
      text.sum(at.sum, at.optimizer, s + 1);
      text.computes("optimizer_step stage=0", at.optimizer, at.end);
    }
    testing::write_all(sandbox.path(fmt::format("r{}.json", r)), text.text());
  }
}

/// The same without kernels: ranges take their time on the host. `balanced`: both ranks as rank 0.
void write_replicas_on_host(const Sandbox& sandbox, bool balanced = false, int chunks = 1) {
  const auto us = [](double ms) { return fmt::format("{:.3f}", 1000 * ms); };
  for (int r = 0; r < 2; ++r) {
    KinetoText text(fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": 2}},)", r));
    text.x("cpu_op", "aten::empty", "0", "0.001", 1);
    for (int s = 0; s < 2; ++s) {
      const Replica at = replica(balanced ? 0 : r, s);
      const auto range = [&](const std::string& name, double begin, double end) {
        text.x("user_annotation", name, us(1 + begin), us(end - begin), 1);
      };
      range(fmt::format("ProfilerStep#{}", s + 1), at.forward, at.end);
      for (int c = 0; c < chunks; ++c) {
        const double forward = (at.backward - at.forward) / chunks;
        const double backward = (at.sum - at.backward) / chunks;
        range(fmt::format("dflop:forward stage={} mb=0", c), at.forward + c * forward,
              at.forward + (c + 1) * forward);
        range(fmt::format("dflop:backward stage={} mb=0", chunks - 1 - c), at.backward + c * backward,
              at.backward + (c + 1) * backward);
      }
      range("dflop:all_reduce stage=0", at.sum, at.optimizer);
      range("dflop:optimizer_step stage=0", at.optimizer, at.end);
    }
    testing::write_all(sandbox.path(fmt::format("r{}.json", r)), text.text());
  }
}

void expect_straggler(const Sandbox& sandbox, double waits) {
  const RunResult imported =
      sandbox.run("import --kineto 'r*.json' --out run.json --format json --fail-on straggler");
  EXPECT_EQ(imported.exit_code, 3) << imported.out << imported.err;
  EXPECT_EQ(imported.err.find("no search for stragglers"), std::string::npos) << imported.err;
  const json out = json::parse(imported.out);
  ASSERT_EQ(out["stragglers"].size(), 1u) << imported.out;
  const json& found = out["stragglers"][0];
  EXPECT_EQ(found["rank"], 1);
  EXPECT_NEAR(found["compute_ratio"].get<double>(), 1.5, 1e-6);
  EXPECT_NEAR(found["others_wait_fraction"].get<double>(), waits, 1e-6);
  EXPECT_NEAR(found["saved_fraction"].get<double>(), 48.0 / 149, 1e-6);
  const std::vector<double> replayed = replayed_ms(sandbox, "--as-others 1");
  ASSERT_EQ(replayed.size(), 3u);
  EXPECT_NEAR(replayed[0], 149, 1e-3);
  EXPECT_NEAR(replayed[1], 149, 1e-3);
  EXPECT_NEAR(replayed[2], 101, 1e-3);
}

TEST(RangedSteps, AStragglerIsNamedByItsKernels) {
  const Sandbox sandbox;
  write_replicas(sandbox);
  expect_straggler(sandbox, 93.0 / 295);
}

// Shares are relative to the steps as counted, 2 x 149. Rank 0 is in the sums for 50 and 53 ms, rank 1 for
// the 5 that they take.
TEST(RangedSteps, RangesSufficeToNameAStraggler) {
  const Sandbox sandbox;
  write_replicas_on_host(sandbox);
  expect_straggler(sandbox, 93.0 / 298);
}

// Ranks that all run the same chunks do the same work.
TEST(RangedSteps, AStragglerIsNamedByRangesOfChunks) {
  const Sandbox sandbox;
  write_replicas_on_host(sandbox, false, 2);
  expect_straggler(sandbox, 93.0 / 298);
}

// Both ranks are in the sums for 50 of 146 ms: neither waits for the other.
TEST(RangedSteps, LongSumsAreNotWaiting) {
  const Sandbox sandbox;
  write_replicas_on_host(sandbox, true);
  const RunResult imported = sandbox.run("import --kineto 'r*.json' --fail-on straggler,waiting");
  EXPECT_EQ(imported.exit_code, 0) << imported.out << imported.err;
}

TEST(RangedSteps, ReplaysNoteRanksThatSendEachOtherMessages) {
  const Sandbox sandbox;
  write_two_stages(sandbox);
  const RunResult imported = sandbox.run("import --kineto 'r*.json' --out run.json");
  EXPECT_NE(imported.err.find("no search for stragglers: the ranks have ranges of different stages"),
            std::string::npos)
      << imported.err;
  expect_error(sandbox.run("replay --trace run.json --as-others 1"),
               {"--as-others", "run.json send each other messages", "'--slow'"});
}

// A rank waits 1 of 100 ms for nobody. The replay loses that time, and there are no receives to blame.
TEST(RangedSteps, AnErrorWithoutMessagesIsNotBlamedOnReceives) {
  const Sandbox sandbox;
  KinetoText text(R"("distributedInfo": {"rank": 0, "world_size": 1},)");
  text.x("user_annotation", "dflop:forward stage=0 mb=0", "0", "40000", 1);
  text.x("user_annotation", "dflop:wait stage=0 mb=0", "40000", "1000", 1);
  text.x("user_annotation", "dflop:backward stage=0 mb=0", "41000", "59000", 1);
  testing::write_all(sandbox.path("r0.json"), text.text());
  ASSERT_EQ(sandbox.run("import --kineto r0.json --out run.json").exit_code, 0);
  const RunResult replayed = sandbox.run("replay --trace run.json --iteration all");
  EXPECT_NE(replayed.err.find("the unchanged replay differs from the recording by -1.0 %"), std::string::npos)
      << replayed.err;
  EXPECT_EQ(replayed.err.find("receives"), std::string::npos) << replayed.err;
}

}  // namespace ranged_steps_test
}  // namespace dflop
