// dflop import and replay on ranks of several process groups, and on stragglers whose cost is hidden.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/support/random.hpp"
#include "tests/cli/run.hpp"
#include "tests/traces/kineto_fixtures.hpp"

namespace dflop {
namespace process_groups_test {

using nlohmann::json;
using testing::expect_error;
using testing::replayed_ms;
using testing::RunResult;
using testing::Sandbox;

/// A StepOfRank writes one step of a rank; times are milliseconds.
class StepOfRank {
 public:
  StepOfRank(int rank, int world_size)
      : text_(fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": {}}},)", rank, world_size)) {
    text_.x("user_annotation", "ProfilerStep#3", "0", "20000", 1);
  }

  void compute(double from, double to) { kernel("gemm", from, to, 7, ""); }

  /// Adds a kernel that the host launches right before it starts.
  void compute_as_launched(double from, double to) {
    launched_us_ = 1000 * (1 + from) - 5;
    compute(from, to);
    launched_us_.reset();
  }

  /// Adds a period in which the host waits for the device.
  void synchronize(double from, double to) {
    text_.x("cuda_runtime", "cudaStreamSynchronize", fmt::format("{:.3f}", 1000 * (1 + from)),
            fmt::format("{:.3f}", 1000 * (to - from)), 1, R"("correlation": 9999)");
  }

  void optimizer(double from, double to) {
    text_.x("user_annotation", "Optimizer.step#AdamW.step", fmt::format("{}", launches_ + 0.5), "5", 1);
    compute(from, to);
  }

  /// Adds an all-reduce of 4000 bytes, or of unknown size, over a group on its own stream.
  void all_reduce(double from, double to, const std::vector<int>& group, bool says_size = true) {
    const int sequence = ++sequences_[group];
    const int stream = 20 + static_cast<int>(std::distance(sequences_.begin(), sequences_.find(group)));
    const std::string size = says_size ? R"(, "In msg nelems": 1000, "Out msg nelems": 1000)" : "";
    kernel("ncclDevKernel_AllReduce_x", from, to, stream,
           fmt::format(R"(, "Collective name": "allreduce", "dtype": "Float"{}, "Group size": {}, )"
                       R"("Process Group Name": "g{}", "Process Group Ranks": "[{}]", "Seq": {})",
                       size, group.size(), fmt::join(group, "_"), fmt::join(group, ", "), sequence));
  }

  void write(const Sandbox& sandbox, const std::string& file) const {
    testing::write_all(sandbox.path(file), text_.text());
  }

 private:
  void kernel(const std::string& name, double from, double to, int stream, const std::string& more) {
    ++launches_;
    text_.launch(launches_, fmt::format("{:.3f}", launched_us_.value_or(launches_)));
    text_.kernel(launches_, name, fmt::format("{:.3f}", 1000 * (1 + from)),
                 fmt::format("{:.3f}", 1000 * (to - from)), stream, more);
  }

  KinetoText text_;
  int launches_ = 0;
  std::optional<double> launched_us_;
  std::map<std::vector<int>, int> sequences_;
};

// Ranks of tp 2 and dp 2, three layers. In each layer a rank computes 20 ms, rank 3 twice as long, sums for 2
// ms with the other rank of its tp group, and continues while the gradients are summed over dp for 3 ms.
//   ranks 2, 3   a layer takes 40 + 2: tp ends at 42, 84, 126
//   ranks 0, 1   20 + 2: 22, 44, 66
//   dp           begins when both are there: ends at 45, 87, 129; so ranks 0 and 1 have their second sum over
//                tp before the first over dp, and ranks 2 and 3 after it
//   optimizer    4 ms, of rank 3 8: 137
// Mended, layers end at 22, 44 and 66, the last sum at 69, and the step at 73.
TEST(ProcessGroups, RanksAreComparedGroupByGroup) {
  const Sandbox sandbox;
  for (int rank = 0; rank < 4; ++rank) {
    const bool slow = rank >= 2;
    StepOfRank step(rank, 4);
    double now = 0;
    for (int layer = 1; layer <= 3; ++layer) {
      const double ready = now + (rank == 3 ? 40 : 20);
      step.compute(now, ready);
      now = layer * (slow ? 42 : 22);
      step.all_reduce(ready, now, slow ? std::vector{2, 3} : std::vector{0, 1});
      const double before = layer > 1 ? 42 * (layer - 1) + 3 : 0;  // of the group over dp
      step.all_reduce(std::max(now, before), 42 * layer + 3, {rank % 2, rank % 2 + 2});
    }
    step.optimizer(129, 129 + (rank == 3 ? 8 : 4));
    step.write(sandbox, fmt::format("r{}.json", rank));
  }
  const RunResult imported =
      sandbox.run("import --kineto 'r*.json' --out run.json --format json --fail-on straggler");
  EXPECT_EQ(imported.exit_code, 3) << imported.err;
  const json out = json::parse(imported.out);
  ASSERT_EQ(out["stragglers"].size(), 1u) << imported.out;
  EXPECT_EQ(out["stragglers"][0]["rank"], 3);
  EXPECT_NEAR(out["stragglers"][0]["saved_fraction"].get<double>(), 1 - 73.0 / 137, 1e-6);
  EXPECT_NEAR(replayed_ms(sandbox, "").back(), 137, 1e-3);
  EXPECT_NEAR(replayed_ms(sandbox, "--as-others 3").back(), 73, 1e-3);
}

// Two ranks compute 10 ms and sum for 2 while their hosts take 4 ms to launch the next work: 10 ms of
// compute, a sum of 2 ms and the optimizer's 2, 28 ms in all. At a quarter of the bandwidth, sums take 8 ms.
// The first sum ends at 18, while the second piece computes from 14 to 24; the second sum ends at 32 and the
// step at 34. If the piece was launched long before, or the host waited for the device, the piece waits for
// the first sum and starts as long after it as before: it computes from 18 + 2 to 30, the second sum ends at
// 38 and the step at 40.
TEST(ProcessGroups, AKernelThatTheHostLaunchesLateHasNotWaited) {
  enum class Host { late, ahead, synchronized };
  for (const Host host : {Host::late, Host::ahead, Host::synchronized}) {
    const Sandbox sandbox;
    for (int rank = 0; rank < 2; ++rank) {
      StepOfRank step(rank, 2);
      step.compute(0, 10);
      step.all_reduce(10, 12, {0, 1});
      if (host == Host::synchronized) step.synchronize(10.5, 12.002);
      host == Host::ahead ? step.compute(14, 24) : step.compute_as_launched(14, 24);
      step.all_reduce(24, 26, {0, 1});
      step.optimizer(26, 28);
      step.write(sandbox, fmt::format("r{}.json", rank));
    }
    ASSERT_EQ(sandbox.run("import --kineto 'r*.json' --out run.json").exit_code, 0);
    EXPECT_NEAR(replayed_ms(sandbox, "").back(), 28, 1e-3);
    EXPECT_NEAR(replayed_ms(sandbox, "--bandwidth-scale 0.25").back(), host == Host::late ? 34 : 40, 1e-3)
        << static_cast<int>(host);
  }
}

// Four ranks compute 30 ms forward. After each 15 ms of the backward, a bucket of gradients takes 20 ms. Rank
// 1 gets its data 40 ms late, so its buckets are ready at 85, 100, 115 and 130, and end at 105, 125, 145 and
// 165. The others' first bucket waits from 45 to 85, of 171 ms with the optimizer, while they compute until
// 90; nothing waits for rank 1 afterwards. With data in time, the buckets end at 65, 85, 105 and 125, and the
// step at 131.
TEST(ProcessGroups, AStragglerIsFoundThoughWaitingForItIsHidden) {
  const Sandbox sandbox;
  for (int rank = 0; rank < 4; ++rank) {
    const double late = rank == 1 ? 40 : 0;
    StepOfRank step(rank, 4);
    step.compute(late, late + 30);
    for (int b = 0; b < 4; ++b) {
      const double ready = late + 45 + 15 * b;
      step.compute(ready - 15, ready);
      step.all_reduce(std::max(ready, b > 0 ? 85.0 + 20 * b : 0), 105 + 20 * b, {0, 1, 2, 3});
    }
    step.optimizer(165, 171);
    step.write(sandbox, fmt::format("r{}.json", rank));
  }
  const RunResult imported =
      sandbox.run("import --kineto 'r*.json' --out run.json --format json --fail-on straggler");
  EXPECT_EQ(imported.exit_code, 3) << imported.err;
  const json examples = json::parse(imported.out)["examples"];
  ASSERT_EQ(examples.size(), 1u) << imported.out;
  EXPECT_EQ(examples[0]["place"], "r1.json");
  EXPECT_NE(examples[0]["text"].get<std::string>().find(
                "the other 3 ranks wait 23.4 % of their steps for it, also behind their own compute; 'replay "
                "--as-others 1' saves 23.4 % of a step"),
            std::string::npos)
      << examples[0]["text"];
  EXPECT_NEAR(replayed_ms(sandbox, "--as-others 1").back(), 131, 1e-3);
}

// The ranks are equal, and their kernels vary by 5 % in each step: no rank is a straggler.
TEST(ProcessGroups, NoiseIsNoStraggler) {
  const Sandbox sandbox;
  Random random(3);
  const auto noisy = [&](double ms) {
    double sum = 0;  // the sum of 12 uniform numbers: about normal, with variance 1
    for (int k = 0; k < 12; ++k) sum += random.uniform();
    return ms * (1 + 0.05 * (sum - 6));
  };
  for (int round = 0; round < 4; ++round) {
    for (const double transfer : {2.0, 20.0}) {
      std::vector<StepOfRank> steps;
      std::vector<double> now(8, 0);
      double end = 0;
      for (int rank = 0; rank < 8; ++rank) {
        steps.emplace_back(rank, 8);
        const double forward = noisy(30);
        steps[rank].compute(0, forward);
        now[rank] = forward;
      }
      for (int b = 0; b < 4; ++b) {
        const double before = end;
        for (int rank = 0; rank < 8; ++rank) {
          const double ready = now[rank] + noisy(15);
          steps[rank].compute(now[rank], ready);
          now[rank] = ready;
        }
        end = std::max(before, *std::ranges::max_element(now)) + transfer;
        for (int rank = 0; rank < 8; ++rank)
          steps[rank].all_reduce(std::max(before, now[rank]), end, {0, 1, 2, 3, 4, 5, 6, 7});
      }
      for (int rank = 0; rank < 8; ++rank) {
        steps[rank].optimizer(end, end + noisy(6));
        steps[rank].write(sandbox, fmt::format("r{}.json", rank));
      }
      const RunResult imported = sandbox.run("import --kineto 'r*.json' --format json");
      EXPECT_TRUE(json::parse(imported.out)["stragglers"].empty()) << imported.out;
    }
  }
}

TEST(ProcessGroups, OtherLinksNeedTheSizesOfCollectives) {
  const Sandbox sandbox;
  for (const bool says_size : {false, true}) {
    for (int rank = 0; rank < 2; ++rank) {
      StepOfRank step(rank, 2);
      step.compute(0, 20);
      step.all_reduce(20, 30, {0, 1}, says_size);
      step.optimizer(30, 34);
      step.write(sandbox, fmt::format("r{}.json", rank));
    }
    ASSERT_EQ(sandbox.run("import --kineto r0.json r1.json --out run.json").exit_code, 0);
    // 20 + 4 without the network. At a quarter of the bandwidth the sum takes 4 times its 10 ms.
    EXPECT_NEAR(replayed_ms(sandbox, "--network none").back(), 24, 1e-3);
    if (says_size) {
      EXPECT_NEAR(replayed_ms(sandbox, "--bandwidth-scale 0.25").back(), 64, 1e-3);
    }
    for (const std::string option :
         {"--bandwidth-scale 0.25", "--latency-scale 2", "--network contention --cluster h100"}) {
      if (says_size) continue;
      expect_error(sandbox.run("replay --trace run.json " + option),
                   {option.substr(0, option.find(' ')), "run.json", "100 %", "record_shapes=True"});
    }
  }
}

// A recording that took 2 % longer than its replay: messages may have started late.
TEST(ProcessGroups, AReplayThatIsShorterThanItsRecordingIsReported) {
  const Sandbox sandbox;
  ASSERT_EQ(
      sandbox.run("import --kineto 'traces/kineto/pipeline/1f1b-rank?.json.gz' --out run.json").exit_code, 0);
  const std::string gpipe = "replay --trace run.json --iteration 1 --pipeline-schedule gpipe";
  EXPECT_EQ(sandbox.run(gpipe).err.find("unchanged replay"), std::string::npos);
  json file = json::parse(testing::read_all(sandbox.path("run.json")));
  for (json& iteration : file["iterations"])
    iteration["makespan_ns"] = iteration["makespan_ns"].get<std::int64_t>() * 102 / 100;
  testing::write_all(sandbox.path("run.json"), file.dump());
  const std::string text = sandbox.run(gpipe).err;
  EXPECT_NE(text.find("the unchanged replay differs from the recording by -2."), std::string::npos) << text;
  EXPECT_NE(text.find("receives are posted only when their data are needed"), std::string::npos) << text;
  EXPECT_NE(text.find("another order may lose several times as much"), std::string::npos) << text;
}

}  // namespace process_groups_test
}  // namespace dflop
