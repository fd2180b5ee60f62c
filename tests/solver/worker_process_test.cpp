#include "solver/bins/worker_process.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/rounds.hpp"
#include "tests/solver/threads.hpp"

namespace dflop {
namespace worker_process_test {

using testing::in_threads;
using testing::kThreads;

constexpr Seconds kLong{300};  // long enough for a busy machine with sanitizers

TEST(WorkerProcess, ReturnsTheResultOfTheWork) {
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

TEST(WorkerProcess, EndsWorkThatDoesNotReturn) {
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

TEST(WorkerProcess, ATooLongMessageMeansABrokenWorker) {
  const auto zeros = [](std::uint64_t count) { return [count] { return std::vector<double>(count); }; };
  EXPECT_EQ(run_in_worker(zeros(kMaxWorkerValues), kLong, {}).end, WorkerEnd::done);
  EXPECT_EQ(run_in_worker(zeros(kMaxWorkerValues + 1), kLong, {}).end, WorkerEnd::died);
}

TEST(WorkerProcess, SeveralAtOnce) {
  constexpr int kEach = testing::rounds(20);
  std::vector<int> right(8, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < kEach; ++k) {
        const auto value = static_cast<double>(100 * t + k);
        right[t] += run_in_worker([&] { return std::vector<double>(5000, value); }, kLong, {}).values ==
                    std::vector<double>(5000, value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(8, kEach));
}

/// Keeps using resources whose locks a child must not find held: the heap, and the exception unwind tables.
void allocate_until(const std::atomic<bool>& enough) {
  std::vector<std::string> texts(64);
  for (std::size_t k = 0; !enough; ++k) {
    texts[k % texts.size()] = std::string(1 + (k * 7919) % 5000, 'x');
    try {
      throw std::runtime_error(texts[k % texts.size()]);
    } catch (const std::runtime_error& error) {
      texts[(k + 1) % texts.size()] = error.what();
    }
  }
}

std::vector<double> allocate_and_throw(int count) {
  std::vector<std::vector<double>> all;
  for (int k = 0; k < count; ++k) {
    try {
      throw std::runtime_error(std::string(100 * (k % 30), 'y'));
    } catch (const std::runtime_error& error) {
      all.emplace_back(17 * (k % 100) + 1, static_cast<double>(std::string(error.what()).size()));
    }
  }
  double sum = 0;  // cycles through 0, 100, ..., 2900: 43,500 every 30
  for (const std::vector<double>& each : all) sum += each.front();
  return {sum};
}

TEST(WorkerProcess, WorksWhileOtherThreadsAllocate) {
  std::atomic<bool> enough{false};
  std::vector<std::jthread> others;
  for (int t = 0; t < 4; ++t) others.emplace_back([&] { allocate_until(enough); });
  std::atomic<int> right{0};
  // A child almost always finds the address sanitizer's allocator locked, is assumed to be stuck and is
  // replaced.
  const int times = testing::integer_programs(20);
  in_threads([&](int) {
    for (int k = 0; k < times; ++k) {
      const WorkerResult result = run_in_worker([] { return allocate_and_throw(300); }, kLong, {});
      right += result.values == std::vector<double>{435'000} ? 1 : 0;
    }
  });
  enough = true;
  EXPECT_EQ(right, kThreads * times);
}

// The child's copy of the mutex is never unlocked, as can happen with an allocator's lock.
TEST(WorkerProcess, ReplacesAChildThatWaitsForALock) {
  std::mutex mutex;
  std::latch locked(1);
  const std::jthread other([&] {
    const std::lock_guard lock(mutex);
    locked.count_down();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  locked.wait();
  const auto work = [&] {
    const std::lock_guard lock(mutex);
    return std::vector<double>{7};
  };
  const WorkerResult result = run_in_worker(work, kLong, {});
  EXPECT_EQ(result.end, WorkerEnd::done);
  EXPECT_EQ(result.values, std::vector<double>{7});
}

/// No matter how the work ends.
TEST(WorkerProcess, LeavesNoProcessAndNoOpenFile) {
  const std::ptrdiff_t files = testing::open_files();
  in_threads([](int t) {
    std::stop_source stopped;
    stopped.request_stop();
    for (int k = 0; k < 20; ++k) {
      const auto work = [how = t % 4]() -> std::vector<double> {
        if (how == 1) std::raise(SIGKILL);
        if (how >= 2) {
          while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
        }
        return std::vector<double>(100'000);
      };
      constexpr std::array ends = {WorkerEnd::done, WorkerEnd::died, WorkerEnd::late, WorkerEnd::stopped};
      const Seconds limit = t % 4 == 2 ? Seconds(1e-3) : kLong;
      const std::stop_token stop = t % 4 == 3 ? stopped.get_token() : std::stop_token();
      EXPECT_EQ(run_in_worker(work, limit, stop).end, ends[t % 4]);
    }
  });
  EXPECT_EQ(testing::open_files(), files);
  EXPECT_FALSE(testing::has_child());
}

}  // namespace worker_process_test
}  // namespace dflop
