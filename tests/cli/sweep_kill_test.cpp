// Sweeps that are killed at any moment and run again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "core/random.hpp"
#include "tests/cli/sweep_fixture.hpp"

namespace dflop {
namespace {

using nlohmann::json;

class SweepKill : public testing::SweepTest {
 protected:
  /// Starts the sweep, sends it `signal` after a while, and returns whether it had ended by itself before.
  bool run_and_kill(int signal, std::chrono::milliseconds after) const {
    const std::string directory = sandbox_.path(".").string();
    const pid_t child = ::fork();
    if (child == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      if (::chdir(directory.c_str()) != 0 || ::dup2(null, 1) < 0 || ::dup2(null, 2) < 0) ::_exit(127);
      ::execl(DFLOP_BINARY, DFLOP_BINARY, "sweep", "--spec", "spec.json", "--out", "killed.sqlite", nullptr);
      ::_exit(127);
    }
    std::this_thread::sleep_for(after);
    ::kill(child, signal);
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status);
  }

  /// Each finished cell with how long it took, which tells a run of it from any other.
  std::map<std::string, double> finished() const {
    std::map<std::string, double> cells;
    if (!sandbox_.has("killed.sqlite")) return cells;
    const testing::RunResult result =
        sandbox_.run("sweep export --measured --format json --db killed.sqlite");
    if (result.exit_code != 0) {  // killed before there was a table
      EXPECT_NE(result.err.find("expected a database of 'dflop sweep'"), std::string::npos) << result.err;
      return cells;
    }
    for (const json& row : json::parse(result.out)) {
      const std::string key = row["seed"].dump() + row["scheduler"].dump();
      EXPECT_EQ(cells.count(key), 0U) << key;
      cells[key] = row["wall_s"];
    }
    return cells;
  }

  void expect_nothing_lost(int signal) const {
    std::vector<int> seeds(40);
    for (int i = 0; i < 40; ++i) seeds[static_cast<std::size_t>(i)] = i;
    const json text =
        spec({{"seed", seeds}, {"scheduler", {"lpt", "random"}}, {"nodes", {2}}, {"gbs", {64}}});
    write("spec.json", text);
    Random random(static_cast<std::uint64_t>(signal));
    std::map<std::string, double> before;
    int killed_midway = 0;
    for (int round = 0; round < 8; ++round) {
      const auto after = std::chrono::milliseconds(10 + static_cast<int>(random.below(400)));
      const bool ended = run_and_kill(signal, after);
      const std::map<std::string, double> now = finished();
      for (const auto& [key, seconds] : before) {
        ASSERT_EQ(now.count(key), 1U) << key << " is lost";
        EXPECT_EQ(now.at(key), seconds) << key << " was run again";
      }
      if (!ended && now.size() > before.size() && now.size() < 80) ++killed_midway;
      before = now;
    }
    const json counts = sweep(text, "killed.sqlite");
    EXPECT_EQ(counts["finished_before"], before.size());
    EXPECT_EQ(counts["run"], 80 - before.size());
    for (const auto& [key, seconds] : before) EXPECT_EQ(finished().at(key), seconds) << key;
    sweep(text, "whole.sqlite");
    EXPECT_EQ(csv("killed.sqlite"), csv("whole.sqlite"));
    RecordProperty("killed_midway", killed_midway);
  }
};

TEST_F(SweepKill, LosesNothingAndRunsNothingTwice) {
  expect_nothing_lost(SIGKILL);
}

TEST_F(SweepKill, NorWhenInterrupted) {
  expect_nothing_lost(SIGINT);
}

}  // namespace
}  // namespace dflop
