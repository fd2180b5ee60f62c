#include "backend/world.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>

#include "backend/communicator.hpp"

namespace dflop {
namespace backend_world_test {

constexpr std::size_t kRanks = 6;

TEST(RankThreads, RunWhenAllHavePrepared) {
  std::atomic<int> prepared = 0;
  std::atomic<int> early = 0;
  std::atomic<int> ran = 0;
  run_in_threads(kRanks, {[&](std::size_t) { ++prepared; },
                          [&](std::size_t) {
                            if (prepared != static_cast<int>(kRanks)) ++early;
                            ++ran;
                          },
                          [](std::size_t, const std::string&) { FAIL(); }});
  EXPECT_EQ(ran, static_cast<int>(kRanks));
  EXPECT_EQ(early, 0);
}

/// Rank 2 fails by itself, the others because of it.
TEST(RankThreads, ThrowTheErrorOfTheRankThatFailedByItself) {
  std::atomic<bool> failed = false;
  std::string told;
  const RankWork work{[](std::size_t) {},
                      [&](std::size_t rank) {
                        if (rank == 2) throw std::runtime_error("no more paper");
                        while (!failed) {
                        }
                        throw Aborted(ErrorKind::internal, "rank 2 failed");
                      },
                      [&](std::size_t rank, const std::string& message) {
                        told = std::to_string(rank) + ": " + message;
                        failed = true;
                      }};
  try {
    run_in_threads(kRanks, work);
    FAIL() << "expected a failure";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no more paper");
  }
  EXPECT_EQ(told, "2: no more paper");
}

/// A rank that fails to prepare does not run and does not block the others.
TEST(RankThreads, DoNotRunIfOneFailedToPrepare) {
  std::atomic<int> ran = 0;
  const RankWork work{[](std::size_t rank) {
                        if (rank == 0) throw std::runtime_error("not ready");
                      },
                      [&](std::size_t) { ++ran; }, [](std::size_t, const std::string&) {}};
  EXPECT_THROW(run_in_threads(kRanks, work), std::runtime_error);
  EXPECT_EQ(ran, static_cast<int>(kRanks) - 1);
}

}  // namespace backend_world_test
}  // namespace dflop
