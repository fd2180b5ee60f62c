#include "kernels/host/team.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "core/error.hpp"

namespace dflop::testing {
namespace team_test {

TEST(Team, RunsEachChunkOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    Team team(threads);
    EXPECT_EQ(team.threads(), threads);
    for (const int count : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      std::vector<std::atomic<int>> members(static_cast<std::size_t>(threads));
      team.run(count, [&](std::int64_t chunk, int member) {
        ++calls[static_cast<std::size_t>(chunk)];
        EXPECT_EQ(++members[static_cast<std::size_t>(member)], 1) << "a member calls one at a time";
        --members[static_cast<std::size_t>(member)];
      });
      for (const auto& called : calls) EXPECT_EQ(called, 1);
    }
  }
}

// A thousand empty rounds: a member that missed one would skip its chunk or never return.
TEST(Team, RunsRoundsThatFollowEachOther) {
  Team team(3);
  std::atomic<int> calls = 0;
  for (int round = 0; round < 1000; ++round) team.run(4, [&](std::int64_t, int) { ++calls; });
  EXPECT_EQ(calls, 4000);
}

TEST(Team, ThrowsWhatAChunkThrows) {
  for (const int threads : {1, 3}) {
    Team team(threads);
    const auto fail = [](std::int64_t chunk, int) {
      if (chunk == 5) throw std::runtime_error("chunk 5");
    };
    EXPECT_THROW(team.run(10, fail), std::runtime_error);
    std::atomic<int> calls = 0;
    team.run(10, [&](std::int64_t, int) { ++calls; });  // the team stays usable
    EXPECT_EQ(calls, 10);
  }
}

TEST(Team, HasAThread) {
  EXPECT_THROW(Team(0), Error);
}

}  // namespace team_test
}  // namespace dflop::testing
