// Sweeps that are killed at arbitrary moments and run again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <numeric>
#include <thread>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "experiments/sweep/sqlite.hpp"
#include "tests/cli/sweep_fixture.hpp"

namespace dflop {
namespace sweep_kill_test {

using nlohmann::json;

class SweepKill : public testing::SweepTest {
 protected:
  std::int64_t cells() const {
    try {
      return Database(sandbox_.path("killed.sqlite").string(), Database::Mode::read)
          .number("SELECT count(*) FROM cells");
    } catch (const Error&) {  // does not exist yet
      return 0;
    }
  }

  /// Starts the sweep and sends it `signal` shortly after it has finished `more` cells. Returns whether it
  /// had ended by itself before.
  bool run_and_kill(int signal, std::int64_t more, std::chrono::microseconds after) const {
    const std::int64_t enough = cells() + more;
    const std::string directory = sandbox_.path(".").string();
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGINT, SIG_DFL);  // a shell that runs tests in the background makes them ignore it
      const int null = ::open("/dev/null", O_RDWR);
      if (::chdir(directory.c_str()) != 0 || ::dup2(null, 1) < 0 || ::dup2(null, 2) < 0) ::_exit(127);
      ::execl(DFLOP_BINARY, DFLOP_BINARY, "sweep", "--spec", "spec.json", "--out", "killed.sqlite", nullptr);
      ::_exit(127);
    }
    int status = 0;
    while (cells() < enough) {
      if (::waitpid(child, &status, WNOHANG) == child) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(after);
    ::kill(child, signal);
    ::waitpid(child, &status, 0);
    return WIFEXITED(status);
  }

  /// Returns each finished cell with its duration, which distinguishes one run of the cell from another.
  std::map<std::string, double> finished() const {
    std::map<std::string, double> cells;
    if (!sandbox_.has("killed.sqlite")) return cells;
    const testing::RunResult result =
        sandbox_.run("sweep export --measured --format json --db killed.sqlite");
    if (result.exit_code != 0) {  // killed before the table existed
      EXPECT_NE(result.err.find("expected a database of 'dflop sweep'"), std::string::npos) << result.err;
      return cells;
    }
    for (const json& row : testing::rows_of(result.out)) {
      const std::string key = row["seed"].dump() + row["scheduler"].dump();
      EXPECT_EQ(cells.count(key), 0U) << key;
      cells[key] = row["wall_s"];
    }
    return cells;
  }

  static json spec_of(std::size_t seeds) {
    std::vector<std::size_t> values(seeds);
    std::iota(values.begin(), values.end(), 0U);
    return spec({{"seed", values}, {"scheduler", {"lpt", "random"}}, {"nodes", {2}}, {"gbs", {64}}});
  }

  void expect_nothing_lost(int signal) const {
    std::size_t seeds = 70;
    write("spec.json", spec_of(seeds));
    Random random(static_cast<std::uint64_t>(signal));
    std::map<std::string, double> before;
    int killed_midway = 0;
    for (int round = 0; round < 8 || (killed_midway == 0 && round < 14); ++round) {
      // On a busy machine, the watcher may come too late for all cells. A spec may grow, so cells are added
      // until the watcher is in time.
      if (killed_midway == 0 && before.size() == 2 * seeds) write("spec.json", spec_of(seeds *= 2));
      const bool ended = run_and_kill(signal, static_cast<std::int64_t>(random.below(8)),
                                      std::chrono::microseconds(random.below(20'000)));
      const std::map<std::string, double> now = finished();
      for (const auto& [key, seconds] : before) {
        ASSERT_EQ(now.count(key), 1U) << key << " is lost";
        EXPECT_EQ(now.at(key), seconds) << key << " was run again";
      }
      if (!ended && now.size() > before.size() && now.size() < 2 * seeds) ++killed_midway;
      before = now;
    }
    const json text = spec_of(seeds);
    const json counts = sweep(text, "killed.sqlite");
    EXPECT_EQ(counts["finished_before"], before.size());
    EXPECT_EQ(counts["run"], 2 * seeds - before.size());
    const std::map<std::string, double> after = finished();
    for (const auto& [key, seconds] : before) EXPECT_EQ(after.at(key), seconds) << key;
    sweep(text, "whole.sqlite");
    EXPECT_EQ(csv("killed.sqlite"), csv("whole.sqlite"));
    EXPECT_GT(killed_midway, 0);
  }
};

TEST_F(SweepKill, LosesNothingAndRunsNothingTwice) {
  expect_nothing_lost(SIGKILL);
}

TEST_F(SweepKill, AnInterruptLosesNothingAndRunsNothingTwice) {
  expect_nothing_lost(SIGINT);
}

}  // namespace sweep_kill_test
}  // namespace dflop
