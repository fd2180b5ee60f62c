// dflop import and replay on steps of ranks that meet in collectives, as in DDP and FSDP.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/support/random.hpp"
#include "tests/cli/run.hpp"
#include "tests/traces/kineto_fixtures.hpp"

namespace dflop {
namespace joined_steps_test {

using nlohmann::json;
using testing::expect_error;
using testing::replayed_ms;
using testing::RunResult;
using testing::Sandbox;

// traces/kineto/ddp: two steps of 8 ranks. A rank computes 30 ms forward, 60 ms backward and 6 ms in the
// optimizer; rank 5 takes 1.4 times as long for all of it. After each third of the backward, a bucket of 100
// MB is ready; its transfer takes 5 ms once all ranks are there. So rank 5 never waits, and the others wait
// 42 + 84 + 5 - 90 = 41 ms in the first step before their optimizer, and 2.4 ms longer in the second, which
// they begin that much earlier:
//   measured       42 + 84 + 5 + 8.4 = 139.4
//   mended         30 + 60 + 5 + 6   = 101, rank 5 as the others
//   links twice    the last bucket, which nothing hides, takes 2.5 less
TEST(JoinedSteps, WhatIfsMendAStragglerAndSpeedUpLinks) {
  const Sandbox sandbox;
  const RunResult imported = sandbox.run("import --kineto traces/kineto/ddp --out run.json --format json");
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  const json steps = json::parse(imported.out)["pipeline"];
  ASSERT_EQ(steps.size(), 2u);
  for (const json& step : steps) {
    EXPECT_NEAR(step["duration_s"].get<double>(), 139.4e-3, 1e-9);
    EXPECT_NEAR(step["replayed_s"].get<double>(), 139.4e-3, 1e-9);
  }
  EXPECT_EQ(imported.err.find("cannot be replayed"), std::string::npos) << imported.err;
  const auto expect = [&](const std::string& options, const std::vector<double>& expected) {
    const std::vector<double> found = replayed_ms(sandbox, options);
    ASSERT_EQ(found.size(), expected.size()) << options;
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3) << options;
  };
  expect("", {139.4, 139.4});
  expect("--slow rank=5:0.71428571", {139.4, 139.4, 101});
  expect("--as-others 5", {139.4, 139.4, 101});
  expect("--bandwidth-scale 2", {139.4, 139.4, 136.9});
  expect("--slow rank=5:0.71428571 --bandwidth-scale 2", {139.4, 139.4, 136.9, 98.5});
  // Rank 2 as slow as rank 5 changes nothing. Twice as slow, it is the rank that all wait for: 192 + 5.
  expect("--slow rank=2:1.4", {139.4, 139.4, 139.4});
  expect("--slow rank=2:2", {139.4, 139.4, 197});
  // A table of the first replayed iteration names the step of the run and says that it excludes what-ifs.
  const RunResult second = sandbox.run("replay --trace run.json --iteration 1 --slow rank=2:2");
  const std::int64_t first_step = steps[0]["step"].get<std::int64_t>();
  EXPECT_NE(
      second.out.find(fmt::format("iteration 1, step {} of the run, by rank, as recorded and as replayed "
                                  "without what-ifs:",
                                  first_step + 1)),
      std::string::npos)
      << second.out;
  EXPECT_NE(
      sandbox.run("replay --trace run.json --iteration all")
          .out.find(fmt::format(
              "iteration 0, step {} of the run, the first of 2 replayed, by rank, as recorded and as replayed:",
              first_step)),
      std::string::npos);
  const json all = json::parse(sandbox.run("replay --trace run.json --iteration 1 --format json").out);
  EXPECT_EQ(all["first_iteration"], 1);
  EXPECT_EQ(all["first_step"], first_step + 1);
  expect_error(sandbox.run("replay --trace run.json --iteration 4"),
               {"from 0 to 1", fmt::format("(steps {} to {} of the run)", first_step, first_step + 1)});
  // The memory of an import is unknown, which is not the same as zero.
  const json runs = json::parse(sandbox.run("replay --trace run.json --format json").out)["runs"];
  EXPECT_TRUE(runs[0]["peak_memory_bytes"].is_null());
  EXPECT_TRUE(runs[1]["peak_memory_bytes"].is_null());
}

// Two ranks, three steps of 30 ms compute, a sum of 5 ms and 10 ms in the optimizer. In the second step rank
// 1 takes three times as long:
//   rank 0   0-30, sum 30-35, 35-45 | 45-75,  sum 135-140, 140-150 | 150-180, sum 200-205, 205-215
//   rank 1   the same               | 45-135, sum 135-140, 140-170 | 170-200, sum 200-205, 205-215
// Rank 0 begins the third step 20 ms before rank 1 and waits that much longer, which lengthens no step: they
// take 45, 170 - 45 = 125 and 215 - 170 = 45 ms. Mended, all take 45, which saves 80 of 215.
TEST(JoinedSteps, AHiccupLeavesTheStepsAfterItReplayable) {
  const Sandbox sandbox;
  for (int rank = 0; rank < 2; ++rank) {
    KinetoText text(fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": 2}},)", rank));
    int launches = 0;
    const auto kernel = [&](const std::string& name, double from, double to, int step, int stream,
                            const std::string& more) {
      ++launches;
      text.launch(launches, fmt::format("{}", 100 * step + launches));
      text.kernel(launches, name, fmt::format("{}", 1000 * (1 + from)), fmt::format("{}", 1000 * (to - from)),
                  stream, more);
    };
    const bool slow = rank == 1;
    const double begins[] = {0, 45, slow ? 170.0 : 150.0};
    const double sums[] = {30, 135, 200};
    const double ends[] = {45, slow ? 170.0 : 150.0, 215};
    for (int step = 0; step < 3; ++step) {
      text.x("user_annotation", fmt::format("ProfilerStep#{}", step + 3), fmt::format("{}", 100 * step), "90",
             1);
      const double computes = begins[step] + (slow && step == 1 ? 90 : 30);
      kernel("gemm", begins[step], computes, step, 7, "");
      kernel("ncclDevKernel_AllReduce_x", computes, sums[step] + 5, step, 20, collective_args(step + 1));
      text.x("user_annotation", "Optimizer.step#AdamW.step", fmt::format("{}", 100 * step + launches + 0.5),
             "5", 1);
      kernel("adam", sums[step] + 5, ends[step], step, 7, "");
    }
    testing::write_all(sandbox.path(fmt::format("r{}.json", rank)), text.text());
  }
  const RunResult imported = sandbox.run("import --kineto 'r*.json' --out run.json --format json");
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  const json out = json::parse(imported.out);
  ASSERT_EQ(out["pipeline"].size(), 3u) << imported.out;
  const double expected[] = {0.045, 0.125, 0.045};
  for (std::size_t step = 0; step < 3; ++step)
    EXPECT_NEAR(out["pipeline"][step]["duration_s"].get<double>(), expected[step], 1e-9) << step;
  ASSERT_EQ(out["stragglers"].size(), 1u) << imported.out;
  EXPECT_NEAR(out["stragglers"][0]["saved_fraction"].get<double>(), 80.0 / 215, 1e-6);
}

/// Writes the kernels of a rank. They are launched one after another in the first 80 us of a step of 100 us,
/// long before they run. Times are in milliseconds.
class RankKernels {
 public:
  RankKernels(int rank, int ranks)
      : text_(fmt::format(R"("baseTimeNanoseconds": 1000000000, "distributedInfo": {{"rank": {},
          "world_size": {}}},)",
                          rank, ranks)) {}

  void step(int number) {
    begin_ = 100 * number;
    text_.x("user_annotation", fmt::format("ProfilerStep#{}", number), fmt::format("{}", begin_), "99", 1);
    launches_ = 0;
  }

  void kernel(const std::string& name, double from, double to, int stream = 7, const std::string& more = "") {
    if (name == "adamw")
      text_.x("user_annotation", "Optimizer.step#AdamW.step", fmt::format("{}", begin_ + launches_ + 0.6),
              "1", 1);
    text_.launch(++correlation_, fmt::format("{}", begin_ + ++launches_));
    text_.kernel(correlation_, name, fmt::format("{:.3f}", 1000 * (1 + from)),
                 fmt::format("{:.3f}", 1000 * (to - from)), stream, more);
  }

  std::string text() const { return text_.text(); }

 private:
  KinetoText text_;
  int begin_ = 0;
  int launches_ = 0;
  int correlation_ = 0;
};

// HSDP of 2 x 2 ranks with two layers of 10 ms, 20 ms on rank 2. A reduce-scatter of 4 ms in {0, 1} and
// {2, 3} follows each layer, and an all-reduce of 9 in {0, 2} and {1, 3} starts at its end. The optimizer
// takes 2.
//   scatter  {0, 1} 10-14 and 20-24, {2, 3} 20-24 and 40-44
//   reduce   24-33 and 44-53, as rank 2 comes last, and 55 in all
// With rank 2 as the others, the scatters are at 10-14 and 20-24 and the all-reduces at 14-23 and 24-33: 35.
TEST(JoinedSteps, WhatIfsKeepTheOrderOfCollectives) {
  const Sandbox sandbox;
  for (int rank = 0; rank < 4; ++rank) {
    RankKernels kernels(rank, 4);
    kernels.step(3);
    const int shard = rank / 2;
    const double layer = rank == 2 ? 20 : 10;
    const double scattered[] = {shard == 0 ? 14.0 : 24.0, shard == 0 ? 24.0 : 44.0};
    const double reduced[] = {33, 53};
    const auto args = [&](const std::string& name, const std::string& group, int first, int second,
                          int number) {
      return fmt::format(R"(, "Collective name": "{}", "dtype": "Float", "In msg nelems": 1000, )"
                         R"("Out msg nelems": 1000, "Group size": 2, "Process Group Name": "{}", )"
                         R"("Process Group Ranks": "[{}, {}]", "Seq": {})",
                         name, group, first, second, number);
    };
    for (int k = 0; k < 2; ++k) {
      kernels.kernel("layer", k * layer, (k + 1) * layer);
      const double free = k == 0 ? 0 : scattered[0];
      kernels.kernel("ncclDevKernel_ReduceScatter_x", std::max((k + 1) * layer, free), scattered[k], 20,
                     args("_reduce_scatter_base", "shard", 2 * shard, 2 * shard + 1, k));
      kernels.kernel("ncclDevKernel_AllReduce_x", std::max(scattered[k], k == 0 ? 0 : reduced[0]), reduced[k],
                     21, args("allreduce", "replica", rank % 2, rank % 2 + 2, k));
    }
    kernels.kernel("adamw", 53, 55);
    testing::write_all(sandbox.path(fmt::format("r{}.json", rank)), kernels.text());
  }
  const RunResult imported = sandbox.run("import --kineto 'r*.json' --out run.json");
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  const auto expect = [&](const std::string& options, double last) {
    const std::vector<double> found = replayed_ms(sandbox, options);
    ASSERT_GE(found.size(), 2u);
    EXPECT_NEAR(found[0], 55, 1e-3);
    EXPECT_NEAR(found.back(), last, 1e-3) << options;
  };
  expect("", 55);
  expect("--as-others 2", 35);
}

// Rank 1 numbers its steps one higher than rank 0. In both steps rank 1 computes for 20 ms and rank 0 for 10,
// and a sum of 4 ms follows: 24 ms each.
TEST(JoinedSteps, StepsOfOtherNumbersAreJoinedByTheirCollectives) {
  const Sandbox sandbox;
  for (int rank = 0; rank < 2; ++rank) {
    RankKernels kernels(rank, 2);
    for (int step = 0; step < 3; ++step) {
      kernels.step(3 + step + rank);
      kernels.kernel("layer", 24 * step, 24 * step + (rank == 1 ? 20 : 10));
      kernels.kernel("ncclDevKernel_AllReduce_x", 24 * step + (rank == 1 ? 20 : 10), 24 * step + 24, 20,
                     collective_args(step));
    }
    testing::write_all(sandbox.path(fmt::format("r{}.json", rank)), kernels.text());
  }
  const RunResult imported =
      sandbox.run("import --kineto 'r*.json' --out run.json --format json --fail-on different_runs");
  EXPECT_EQ(imported.exit_code, 3);
  EXPECT_EQ(json::parse(imported.out)["pipeline"].size(), 3u) << imported.out;
  EXPECT_NEAR(replayed_ms(sandbox, "--as-others 1").back(), 14, 1e-3);
  EXPECT_NE(sandbox.run("replay --trace run.json").err.find("different_runs: "), std::string::npos);
}

// An all-gather of parameters takes 8 ms behind the next step's first 6 ms and 2 ms of waiting. A step of 6 +
// 2 + 6 + 12 ms does not match the gather launched in it, which in two of three steps ends after the step:
// only the last step is long enough. A replay reports this.
TEST(JoinedSteps, ReplaysSayThatMostStepsAreLeftOut) {
  const Sandbox sandbox;
  for (int rank = 0; rank < 2; ++rank) {
    RankKernels kernels(rank, 2);
    for (int step = 0; step < 3; ++step) {
      const double begin = 26 * step;
      kernels.step(3 + step);
      kernels.kernel("layer", begin, begin + 6);
      kernels.kernel("layer", begin + 8, begin + 14);
      kernels.kernel("layer", begin + 14, begin + 26);
      kernels.kernel("ncclDevKernel_AllGather_x", begin + 26, begin + 34, 20,
                     collective_args(step, "_allgather_base"));
    }
    testing::write_all(sandbox.path(fmt::format("r{}.json", rank)), kernels.text());
  }
  const RunResult imported = sandbox.run("import --kineto 'r*.json' --out run.json --format json");
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  ASSERT_EQ(json::parse(imported.out)["pipeline"].size(), 1u) << imported.out;
  EXPECT_NE(
      sandbox.run("replay --trace run.json")
          .err.find(
              "inconsistent_step: 2 of 3 steps are left out, and the steps that are kept may differ from "
              "them"),
      std::string::npos);
}

// The first of two steps has no collective: a statement about all steps does not follow from it alone.
TEST(JoinedSteps, LinksChangeNothingOnlyIfNoStepUsesThem) {
  const Sandbox sandbox;
  for (int rank = 0; rank < 2; ++rank) {
    RankKernels kernels(rank, 2);
    kernels.step(3);
    kernels.kernel("layer", 0, 20);
    kernels.step(4);
    kernels.kernel("layer", 20, 40);
    kernels.kernel("ncclDevKernel_AllReduce_x", 40, 44, 20, collective_args(0));
    testing::write_all(sandbox.path(fmt::format("r{}.json", rank)), kernels.text());
  }
  ASSERT_EQ(sandbox.run("import --kineto 'r*.json' --out run.json").exit_code, 0);
  const auto says_nothing_changes = [&](const std::string& iteration) {
    return sandbox.run("replay --trace run.json --bandwidth-scale 0.5 --iteration " + iteration)
               .err.find("changes nothing") != std::string::npos;
  };
  EXPECT_FALSE(says_nothing_changes("all"));
  EXPECT_TRUE(says_nothing_changes("0"));
  EXPECT_FALSE(says_nothing_changes("1"));
}

TEST(JoinedSteps, OptionsOfPipelinesAreRejected) {
  const Sandbox sandbox;
  ASSERT_EQ(sandbox.run("import --kineto 'traces/kineto/ddp/rank*.json' --out run.json").exit_code, 0);
  for (const std::string option : {"--pipeline-schedule gpipe", "--microbatches 4"})
    expect_error(sandbox.run("replay --trace run.json " + option),
                 {option.substr(0, option.find(' ')), "run.json",
                  "has ranks that meet in collectives, but no "
                  "stages and microbatches"});
}

// Two ranks of an FSDP step, times in milliseconds. The first all-gather delays both; the second runs behind
// the first layer. Rank 1 comes 4 later to the reduce-scatter, and the optimizer waits for it.
//   gather  0-10  10-20        compute 10-30 and 30-50, of rank 1 30-54
//   scatter from 50 (rank 1: 54) to 64   optimizer 64-69
// Links of half the bandwidth: 20 + 40 + 4 + 20 + 5 = 89; the second gather ends at 40, behind the first
// layer.
std::string fsdp_rank(int rank) {
  KinetoText text(fmt::format(R"("baseTimeNanoseconds": 1000000000, "distributedInfo": {{"rank": {},
      "world_size": 2}},)",
                              rank));
  int correlation = 0;
  const auto kernel = [&](const std::string& name, double from, double to, int stream,
                          const std::string& more) {
    text.launch(++correlation, fmt::format("{}", correlation));
    text.kernel(correlation, name, fmt::format("{}", 1000 * (1 + from)),
                fmt::format("{}", 1000 * (to - from)), stream, more);
  };
  const std::string nccl = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
  const double late = rank == 1 ? 4 : 0;
  text.x("user_annotation", "ProfilerStep#3", "0", "100", 1);
  kernel(nccl, 0, 10, 20, collective_args(1, "_allgather_base"));
  kernel("layer", 10, 30, 7, "");
  kernel(nccl, 10, 20, 20, collective_args(2, "_allgather_base"));
  kernel("layer", 30, 50 + late, 7, "");
  kernel(nccl, 50 + late, 64, 21, collective_args(3, "_reduce_scatter_base"));
  text.x("user_annotation", "Optimizer.step#AdamW.step", "20", "2", 1);
  text.launch(++correlation, "21");
  text.kernel(correlation, "adamw", "65000", "5000");
  return text.text();
}

TEST(JoinedSteps, ComputeWaitsForTheRecordedCollectives) {
  const Sandbox sandbox;
  for (int rank = 0; rank < 2; ++rank)
    testing::write_all(sandbox.path(fmt::format("r{}.json", rank)), fsdp_rank(rank));
  const RunResult imported = sandbox.run("import --kineto r0.json r1.json --out run.json");
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  const auto expect = [&](const std::string& options, double last) {
    const std::vector<double> found = replayed_ms(sandbox, options);
    ASSERT_GE(found.size(), 2u);
    EXPECT_NEAR(found[0], 69, 1e-3);
    EXPECT_NEAR(found[1], 69, 1e-3);
    EXPECT_NEAR(found.back(), last, 1e-3) << options;
  };
  expect("", 69);
  expect("--bandwidth-scale 0.5", 89);
  // Three collectives of the same size do not determine a latency, and a note says so.
  expect("--latency-scale 10", 69);
  EXPECT_NE(sandbox.run("replay --trace run.json --latency-scale 10")
                .err.find("latency and bandwidth of 3 messages and collectives could not be told apart"),
            std::string::npos);
  // Rank 1 computes 10 + 12 and waits for rank 0 from 32 to 50. The step takes 50 + 10 and rank 0's
  // optimizer.
  expect("--slow rank=1:0.5", 65);
}

/// A step of data-parallel ranks, in milliseconds for a rank with factor 1.
struct RandomStep {
  double forward = 0;
  double optimizer = 0;
  std::vector<double> backward;  ///< before each bucket is ready
  std::vector<double> transfer;  ///< of each bucket
  std::vector<double> factor;    ///< of each rank
};

/// A Run holds when the buckets and the step end.
struct Run {
  std::vector<double> ends;
  double makespan = 0;
};

/// Returns when a bucket of a rank is ready.
double ready(const RandomStep& step, std::size_t rank, std::size_t bucket) {
  double time = step.forward;
  for (std::size_t b = 0; b <= bucket; ++b) time += step.backward[b];
  return time * step.factor[rank];
}

Run run_of(const RandomStep& step) {
  Run run;
  double before = 0;
  for (std::size_t b = 0; b < step.transfer.size(); ++b) {
    for (std::size_t r = 0; r < step.factor.size(); ++r) before = std::max(before, ready(step, r, b));
    before += step.transfer[b];
    run.ends.push_back(before);
  }
  for (const double factor : step.factor)
    run.makespan = std::max(run.makespan, before + step.optimizer * factor);
  return run;
}

std::string trace_of(const RandomStep& step, std::size_t rank) {
  const Run run = run_of(step);
  KinetoText text(fmt::format(R"("baseTimeNanoseconds": 1000000000, "distributedInfo": {{"rank": {},
      "world_size": {}}},)",
                              rank, step.factor.size()));
  int correlation = 0;
  const auto kernel = [&](const std::string& name, double from, double to, int stream,
                          const std::string& more) {
    text.launch(++correlation, fmt::format("{}", correlation));
    text.kernel(correlation, name, fmt::format("{:.3f}", 1000 * (1 + from)),
                fmt::format("{:.3f}", 1000 * (to - from)), stream, more);
  };
  text.x("user_annotation", "ProfilerStep#3", "0", "900", 1);
  double now = 0;
  double queue = 0;
  for (std::size_t b = 0; b < step.transfer.size(); ++b) {
    const double entry = ready(step, rank, b);
    kernel("gemm", now, entry, 7, "");
    now = entry;
    kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
           std::max(entry, queue), run.ends[b], 20, collective_args(static_cast<int>(b) + 1));
    queue = run.ends[b];
  }
  text.x("user_annotation", "Optimizer.step#AdamW.step", "100", "100", 1);
  text.launch(++correlation, "150");
  text.kernel(correlation, "adamw", fmt::format("{:.3f}", 1000 * (1 + queue)),
              fmt::format("{:.3f}", 1000 * step.optimizer * step.factor[rank]));
  return text.text();
}

// The replayed time of a rank with another factor is what a step with such a rank takes.
TEST(JoinedSteps, ReplaysArePredictions) {
  Random random(11);
  const Sandbox sandbox;
  const auto between = [&](double least, double most) { return least + (most - least) * random.uniform(); };
  for (int round = 0; round < 12; ++round) {
    RandomStep step;
    step.forward = between(5, 30);
    step.optimizer = between(1, 5);
    const std::size_t buckets = 1 + random.below(4);
    for (std::size_t b = 0; b < buckets; ++b) {
      step.backward.push_back(between(2, 20));
      step.transfer.push_back(between(0.5, 15));
    }
    const std::size_t ranks = 2 + random.below(3);
    std::string files;
    for (std::size_t r = 0; r < ranks; ++r) step.factor.push_back(between(1, 1.5));
    for (std::size_t r = 0; r < ranks; ++r) {
      files += fmt::format(" r{}.json", r);
      testing::write_all(sandbox.path(fmt::format("r{}.json", r)), trace_of(step, r));
    }
    const RunResult imported = sandbox.run("import --kineto" + files + " --out run.json");
    ASSERT_EQ(imported.exit_code, 0) << imported.err;
    const std::size_t changed = random.below(ranks);
    const double by = between(0.5, 1.6);
    const std::vector<double> found = replayed_ms(sandbox, fmt::format("--slow rank={}:{}", changed, by));
    ASSERT_EQ(found.size(), 3u) << "round " << round;
    EXPECT_NEAR(found[0], run_of(step).makespan, 0.02) << "round " << round;
    EXPECT_NEAR(found[1], run_of(step).makespan, 0.02) << "round " << round;
    step.factor[changed] *= by;
    EXPECT_NEAR(found[2], run_of(step).makespan, 0.02) << "round " << round;
  }
}

TEST(JoinedSteps, ASingleRankCannotBeReplayed) {
  const Sandbox sandbox;
  const RunResult one = sandbox.run("import --kineto traces/kineto/ddp/rank0.json --out one.json");
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_NE(
      one.err.find("cannot be replayed: the waiting time of a rank can be seen only next to other ranks"),
      std::string::npos)
      << one.err;
  expect_error(sandbox.run("replay --trace one.json --slow rank=0:0.5"), {"position", "meet in collectives"});
  const RunResult messages =
      sandbox.run("import --kineto traces/kineto/rank0.json traces/kineto/rank1.json --out two.json");
  EXPECT_NE(messages.err.find("messages between ranks"), std::string::npos) << messages.err;
}

TEST(JoinedSteps, TheStragglerIsNamedAndFailsAGate) {
  const Sandbox sandbox;
  const RunResult result =
      sandbox.run("import --kineto traces/kineto/ddp --format json --fail-on acausal,straggler");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("dflop: --fail-on: 1 of kind straggler"), std::string::npos) << result.err;
  const json out = json::parse(result.out);
  ASSERT_EQ(out["findings"].size(), 1u) << out["findings"];
  EXPECT_EQ(out["examples"][0]["place"], "traces/kineto/ddp/rank5.json");
  // The others compute until 90 of their 137 ms. The second bucket is ready on all ranks at 98. The third
  // begins after it, at 103, and is ready on all ranks at 126: 8 + 23 of waiting; 2.4 more of 139.4 in the
  // next step. 64.4 of 276.4. Mended, a step takes 101 of 139.4.
  EXPECT_EQ(out["examples"][0]["text"],
            "rank 5 computes 1.40 x the median; the other 7 ranks wait 23.3 % of their steps for it; 'replay "
            "--as-others 5' saves 27.5 % of a step");
  EXPECT_EQ(sandbox.run("import --kineto traces/kineto/ddp --fail-on acausal").exit_code, 0);
  EXPECT_EQ(sandbox.run("import --kineto traces/kineto/ddp --fail-on any").exit_code, 3);
  expect_error(sandbox.run("import --kineto traces/kineto/ddp --fail-on stragler"),
               {"--fail-on", "did you mean 'straggler'"});
}

TEST(JoinedSteps, ATraceOfNoDeviceIsAFinding) {
  const Sandbox sandbox;
  testing::write_all(sandbox.path("cpu.json"),
                     R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm",
      "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {}}]})");
  const RunResult result = sandbox.run("import --kineto cpu.json --fail-on no_device_activity");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.out.find("no_device_activity: cpu.json: expected kernels or copies"), std::string::npos)
      << result.out;
}

TEST(JoinedSteps, FoldersAndPatternsOfTraces) {
  const Sandbox sandbox;
  const std::string folder = sandbox.run("import --kineto traces/kineto/ddp --format json").out;
  EXPECT_EQ(sandbox.run("import --kineto 'traces/kineto/ddp/rank?.json' --format json").out, folder);
  expect_error(sandbox.run("import --kineto 'traces/kineto/ddp/no*.json'"),
               {"no*.json", "match the pattern"});
  std::filesystem::create_directory(sandbox.path("empty"));
  expect_error(sandbox.run("import --kineto empty"), {"empty", "expected traces"});
}

}  // namespace joined_steps_test
}  // namespace dflop
