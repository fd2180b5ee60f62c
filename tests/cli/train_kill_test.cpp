// A run that is killed at arbitrary moments, repeatedly, resumes as if it had never stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/support/random.hpp"
#include "tests/cli/run.hpp"
#include "tests/cli/running.hpp"
#include "tests/traces/dataset/shard_folder.hpp"
#include "traces/checkpoints/folder.hpp"
#include "traces/checkpoints/pieces.hpp"

namespace dflop {
namespace train_kill_test {

using nlohmann::json;
using testing::Sandbox;

constexpr int kKills = 6;
constexpr std::size_t kMaxSteps = 4;  // between two kills
constexpr int kSteps = kKills * static_cast<int>(kMaxSteps) + 3;
constexpr int kGbs = 2;

struct TrainKill : ::testing::Test {
  Sandbox sandbox;

  /// Makes a model's folder, and tars with three pictures and ten texts: thirteen samples in batches of two,
  /// so no two steps of a run have the same samples, and epochs end within a step.
  void SetUp() override {
    std::filesystem::create_directories(sandbox.path("hf"));
    std::filesystem::create_directories(sandbox.path("tars"));
    testing::write_shard_folder(sandbox.path("hf").string());
    std::filesystem::copy(std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/shard-000000.tar",
                          sandbox.path("tars/pictures.tar"));
    std::string texts;
    for (char c = 'a'; c < 'k'; ++c) {
      const std::string words(3 + static_cast<std::size_t>(c - 'a'), c);
      texts += testing::tar_entry(std::string(1, c) + ".json", json{{"text", "a text of " + words}}.dump());
    }
    testing::write_all(sandbox.path("tars/texts.tar"), texts + std::string(1024, '\0'));
  }

  static std::vector<std::string> arguments(const std::string& run) {
    return {"train",
            "--hf",
            "hf",
            "--random-weights",
            "--data",
            "tars",
            "--gbs",
            std::to_string(kGbs),
            "--tp",
            "2",
            "--microbatches",
            "1",
            "--clip-norm",
            "1",
            "--checkpoint",
            run,
            "--every",
            "1",
            "--log",
            run + ".jsonl",
            "--resume",
            "--steps",
            std::to_string(kSteps)};
  }
  /// Runs to the end.
  void finish(const std::string& run) const {
    testing::Running last(sandbox, arguments(run));
    EXPECT_EQ(last.wait(), 0) << last.err();
  }
  std::size_t lines(const std::string& run) const {
    const std::string log =
        sandbox.has(run + ".jsonl") ? testing::read_all(sandbox.path(run + ".jsonl")) : "";
    return static_cast<std::size_t>(std::count(log.begin(), log.end(), '\n'));
  }
  /// Kills a run some time after its first `steps` steps, or before. Returns whether it was killed: on a fast
  /// machine it may have ended earlier.
  bool run_and_kill(const std::string& run, std::size_t steps, std::chrono::microseconds after) const {
    const std::size_t before = lines(run);
    testing::Running killed(sandbox, arguments(run));
    killed.wait_until([&] { return lines(run) >= before + steps; });
    std::this_thread::sleep_for(after);
    killed.send(SIGKILL);
    const int code = killed.wait();
    EXPECT_TRUE(code == 128 + SIGKILL || code == 0) << killed.err();
    return code != 0;
  }
  std::vector<json> log(const std::string& run) const {
    std::vector<json> all;
    std::istringstream in(testing::read_all(sandbox.path(run + ".jsonl")));
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }
};

/// A step's loss shows which samples it trained on, and the weights and moments of the last checkpoint show
/// all that was learned. Steps that were killed before their checkpoint was complete occur twice, with equal
/// results. A repeat of the test (--gtest_repeat) kills at other moments.
TEST_F(TrainKill, ResumesBitIdenticallyAfterEachKill) {
  finish("whole");
  const std::vector<json> whole = log("whole");
  ASSERT_EQ(whole.size(), static_cast<std::size_t>(kSteps));
  static Random random(1);
  for (int kill = 0; kill < kKills; ++kill) {
    const auto steps = static_cast<std::size_t>(random.below(kMaxSteps));
    const bool is_killed = run_and_kill("killed", steps, std::chrono::microseconds(random.below(60'000)));
    ASSERT_TRUE(is_killed || kill > 0);
    if (!is_killed || lines("killed") + kMaxSteps >= static_cast<std::size_t>(kSteps)) break;
  }
  finish("killed");
  std::int64_t done = 0;
  for (const json& step : log("killed")) {
    const auto number = step["step"].get<std::int64_t>();
    EXPECT_TRUE(number == done || number == done + 1) << number << " after " << done;
    done = std::max(done, number);
    const json& expected = whole.at(static_cast<std::size_t>(number - 1));
    for (const char* figure : {"loss", "gradient_norm", "samples", "encoder_tokens", "llm_tokens"}) {
      EXPECT_EQ(step[figure], expected[figure]) << figure << " of step " << number;
    }
  }
  EXPECT_EQ(done, kSteps);
  const CheckpointReader found(step_folder(sandbox.path("killed").string(), kSteps));
  const CheckpointReader expected(step_folder(sandbox.path("whole").string(), kSteps));
  EXPECT_EQ(found.index().samples_drawn, kSteps * kGbs);
  EXPECT_EQ(found.index(), expected.index());  // including the checksums of all files
}

}  // namespace train_kill_test
}  // namespace dflop
