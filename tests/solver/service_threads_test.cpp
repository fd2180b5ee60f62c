// Schedulers and the scheduling service under many threads, stops at random moments, and schedulers that
// never return. Most valuable with the thread sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/service_fixtures.hpp"
#include "tests/solver/threads.hpp"

namespace dflop {
namespace service_threads_test {

using testing::deterministic;
using testing::direct;
using testing::in_threads;
using testing::kThreads;
using testing::live;
using testing::service_batch;
using testing::service_input;
using testing::service_plan;
using testing::stub;
using testing::wait_for;

constexpr int kTimes = testing::integer_programs(1000) / testing::kThreads * testing::kThreads;

constexpr ScheduleLimits kQuick{.steps = 20, .node_budget = 1};

/// LLM tokens of the samples, bin by bin, sorted.
std::vector<std::int64_t> placed_tokens(const Batch& batch, const Assignment& assignment) {
  std::vector<std::int64_t> tokens;
  for (int bin = 0; bin < assignment.microbatches * assignment.dp; ++bin) {
    for (std::size_t i = 0; i < assignment.bin.size(); ++i) {
      if (assignment.bin[i] == bin) tokens.push_back(batch[i].llm_tokens);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<std::int64_t> drawn_tokens(std::uint64_t iteration) {
  std::vector<std::int64_t> tokens;
  const auto batch = service_batch(iteration);
  for (const Sample& sample : *batch) tokens.push_back(sample.llm_tokens);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

TEST(SchedulersInThreads, LoseNothing) {
  for (const std::string_view name : scheduler_names()) {
    const std::shared_ptr<const Scheduler> scheduler = make_scheduler(name);
    std::vector<ScheduleResult> results(kTimes);
    std::atomic<std::size_t> next{0};
    in_threads([&](int) {
      for (std::size_t k = next++; k < kTimes; k = next++) results[k] = direct(*scheduler, k, kQuick);
    });
    for (std::size_t k = 0; k < kTimes; ++k) {
      ASSERT_NO_THROW(validate(results[k].assignment, service_plan(), 9)) << name << " " << k;
      ASSERT_EQ(placed_tokens(*service_batch(k), results[k].assignment), drawn_tokens(k)) << name << " " << k;
      if (k % 20 != 0) continue;
      ASSERT_EQ(results[k].assignment, direct(*scheduler, k, kQuick).assignment) << name << " " << k;
    }
  }
}

TEST(ServicesInThreads, LoseNothing) {
  for (const std::string_view name : scheduler_names()) {
    const std::shared_ptr<const Scheduler> scheduler = make_scheduler(name);
    std::atomic<int> right{0};
    in_threads([&](int t) {
      const int depth = 1 + t / 2;
      ServiceOptions options = t % 2 == 0 ? deterministic(depth) : live(depth);
      options.limits = kQuick;
      SchedulingService service(service_input(scheduler, kTimes / kThreads), options);
      std::uint64_t k = 0;
      while (const auto batch = service.next()) {
        const bool whole = batch->iteration == k && batch->events.empty() &&
                           placed_tokens(*batch->samples, batch->result.assignment) == drawn_tokens(k);
        if (whole) ++right;
        ++k;
      }
    });
    EXPECT_EQ(right, kTimes) << name;
  }
}

/// Finds the same result repeatedly until told to stop.
ScheduleResult search(const Scheduler& lpt, const ScheduleRequest& request) {
  const ScheduleResult found = lpt.schedule(request);
  for (int step = 0; step < 20 && !request.stop.stop_requested(); ++step) {
    if (request.improved) request.improved(lpt.schedule(request));
  }
  return found;
}

TEST(ServicesInThreads, EndAtAnyMoment) {
  const std::shared_ptr<const Scheduler> lpt = make_scheduler("lpt");
  const auto scheduler = stub([lpt](const ScheduleRequest& request) { return search(*lpt, request); });
  Random random(3);
  for (int round = 0; round < 120; ++round) {
    const int depth = 1 + static_cast<int>(random.below(3));
    SchedulingService service(service_input(scheduler), round % 2 == 0 ? deterministic(depth) : live(depth));
    std::uint64_t taken = 0;
    if (round % 3 == 0) {  // stopped by the destructor
      for (std::uint64_t left = random.below(4); left > 0; --left)
        ASSERT_EQ(service.next()->iteration, taken++);
      continue;
    }
    const auto pause = std::chrono::microseconds(random.below(1000));
    std::jthread other([&] {
      std::this_thread::sleep_for(pause);
      service.stop();
    });
    while (const auto batch = service.next()) ASSERT_EQ(batch->iteration, taken++);
    ASSERT_FALSE(service.next());
  }
}

/// A scheduler whose calls do not return before `gate` opens.
struct Wedged {
  std::latch gate{1};
  std::atomic<int> entered{0};
  std::atomic<int> left{0};
};

TEST(ServicesInThreads, SchedulersThatNeverReturnAreAbandoned) {
  const auto wedged = std::make_shared<Wedged>();
  const std::shared_ptr<const Scheduler> lpt = make_scheduler("lpt");
  const auto scheduler = stub([wedged, lpt](const ScheduleRequest& request) {
    ++wedged->entered;
    wedged->gate.wait();
    ScheduleResult found = lpt->schedule(request);
    if (request.improved) request.improved(found);  // too late, and without effect
    found.objective = Objective::makespan;
    ++wedged->left;
    return found;
  });
  ServiceOptions options = live();
  options.stall_after = Seconds(2e-3);
  options.most_stalled = 3;
  SchedulingService service(service_input(scheduler), options);
  std::uint64_t k = 0;
  std::vector<ScheduleEvent> events;
  const auto take = [&] {
    const auto batch = service.next();
    EXPECT_EQ(batch->iteration, k);
    if (wedged->left == 0) {
      EXPECT_EQ(batch->result.assignment, direct(*lpt, k).assignment);
    }
    ++k;
    events.insert(events.end(), batch->events.begin(), batch->events.end());
    return batch->result.objective;
  };
  while (events.size() < 3) take();
  for (int more = 0; more < 50; ++more) take();
  EXPECT_EQ(wedged->entered, 3);  // and no others
  ASSERT_EQ(events.size(), 3U);
  for (const ScheduleEvent& event : events) EXPECT_EQ(event.kind, ScheduleEventKind::solver_stalled);
  EXPECT_NE(events[2].message.find("has not returned 2 ms after its deadline"), std::string::npos);
  EXPECT_NE(events[2].message.find("abandoned, 3 of at most 3"), std::string::npos);
  // When they return, there is a scheduler again.
  wedged->gate.count_down();
  while (take() != Objective::makespan) std::this_thread::yield();
}

TEST(ServicesInThreads, EndingAbandonsASchedulerThatNeverReturns) {
  const auto wedged = std::make_shared<Wedged>();
  std::weak_ptr<const Scheduler> watched;
  {
    const auto scheduler = stub([wedged](const ScheduleRequest&) -> ScheduleResult {
      ++wedged->entered;
      wedged->gate.wait();
      return {};
    });
    watched = scheduler;
    ServiceOptions options = live();
    options.stall_after = Seconds(2e-3);
    SchedulingService service(service_input(scheduler), options);
    wait_for([&] { return wedged->entered == 1; });
  }
  EXPECT_FALSE(watched.expired());  // its thread owns what it needs
  wedged->gate.count_down();
  wait_for([&] { return watched.expired(); });
}

TEST(ServicesInThreads, SchedulersPastTheirTimeLimitAreAbandonedUnasked) {
  const auto wedged = std::make_shared<Wedged>();
  const auto scheduler = stub([wedged](const ScheduleRequest& request) -> ScheduleResult {
    wait_for([&] { return request.stop.stop_requested(); });
    ++wedged->entered;
    wedged->gate.wait();
    return {};
  });
  ServiceOptions options = live();
  options.limits.time_limit = Seconds(1e-3);
  options.stall_after = Seconds(2e-3);
  SchedulingService service(service_input(scheduler), options);
  wait_for([&] { return wedged->entered == 1; });
  const auto batch = service.next();
  EXPECT_EQ(batch->iteration, 0U);
  ASSERT_EQ(batch->events.size(), 1U);
  EXPECT_EQ(batch->events[0].kind, ScheduleEventKind::solver_stalled);
  EXPECT_EQ(batch->events[0].iteration, 0U);
  EXPECT_EQ(batch->result.status, ScheduleStatus::fallback);
  EXPECT_EQ(batch->result.reason, batch->events[0].message);
  wedged->gate.count_down();
}

}  // namespace service_threads_test
}  // namespace dflop
