#include "solver/worker_process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <thread>

namespace dflop {
namespace {

constexpr Seconds kLong(60);

TEST(WorkerProcess, ReturnsWhatTheWorkReturns) {
  std::vector<double> expected(100'000);  // more than a pipe holds
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<double>(i) / 3;
  const WorkerResult result = run_in_worker([&] { return expected; }, kLong, {});
  EXPECT_EQ(result.end, WorkerEnd::done);
  EXPECT_EQ(result.values, expected);
  EXPECT_EQ(run_in_worker([] { return std::vector<double>(); }, kLong, {}).end, WorkerEnd::done);
}

TEST(WorkerProcess, OutlivesACrash) {
  EXPECT_EQ(run_in_worker(
                []() -> std::vector<double> {
                  std::raise(SIGSEGV);
                  return {};
                },
                kLong, {})
                .end,
            WorkerEnd::died);
  EXPECT_EQ(run_in_worker([]() -> std::vector<double> { throw std::runtime_error("x"); }, kLong, {}).end,
            WorkerEnd::died);
}

TEST(WorkerProcess, EndsWhatDoesNotReturn) {
  const auto never = []() -> std::vector<double> {
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  };
  EXPECT_EQ(run_in_worker(never, Seconds(0.02), {}).end, WorkerEnd::late);
  std::stop_source stop;
  std::thread asks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop.request_stop();
  });
  EXPECT_EQ(run_in_worker(never, kLong, stop.get_token()).end, WorkerEnd::stopped);
  asks.join();
}

TEST(WorkerProcess, ChangesNothingAndPrintsNothing) {
  int changed = 0;
  ::testing::internal::CaptureStdout();
  const WorkerResult result = run_in_worker(
      [&] {
        changed = 1;
        std::puts("noise");
        std::fflush(stdout);
        return std::vector<double>{1};
      },
      kLong, {});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(result.values, std::vector<double>{1});
  EXPECT_EQ(changed, 0);
}

TEST(WorkerProcess, SeveralAtOnce) {
  std::vector<int> right(8, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 20; ++k) {
        const auto value = static_cast<double>(100 * t + k);
        right[t] += run_in_worker([&] { return std::vector<double>(5000, value); }, kLong, {}).values ==
                    std::vector<double>(5000, value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(8, 20));
}

}  // namespace
}  // namespace dflop
