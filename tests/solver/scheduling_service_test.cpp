#include "solver/service/scheduling_service.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/service_fixtures.hpp"

namespace dflop {
namespace scheduling_service_test {

using testing::deterministic;
using testing::direct;
using testing::live;
using testing::service_batch;
using testing::service_input;
using testing::stub;
using testing::wait_for;

/// Blocks until the request's search is told to stop.
void wait_for_stop(const ScheduleRequest& request) {
  wait_for([&] { return request.stop.stop_requested(); });
}

std::int64_t count(const std::vector<ScheduleEvent>& events, ScheduleEventKind kind) {
  return std::count_if(events.begin(), events.end(), [&](const auto& event) { return event.kind == kind; });
}

bool same_samples(const Batch& a, const Batch& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Sample& x, const Sample& y) {
    return x.encoder_sequences == y.encoder_sequences && x.llm_tokens == y.llm_tokens;
  });
}

TEST(SchedulingService, ReturnsTheSchedulersAssignment) {
  for (const std::string_view name : scheduler_names()) {
    const std::shared_ptr<const Scheduler> scheduler = make_scheduler(name);
    SchedulingService service(service_input(scheduler, 9), deterministic(3));
    for (std::uint64_t k = 0; k < 9; ++k) {
      const auto batch = service.next();
      ASSERT_TRUE(batch) << name;
      EXPECT_EQ(batch->iteration, k);
      EXPECT_TRUE(same_samples(*batch->samples, *service_batch(k)));
      const ScheduleResult expected = direct(*scheduler, k);
      EXPECT_EQ(batch->result.assignment, expected.assignment) << name << " iteration " << k;
      EXPECT_EQ(batch->result.value, expected.value);
      EXPECT_EQ(batch->result.bound, expected.bound);
      EXPECT_EQ(batch->result.status, expected.status);
      EXPECT_TRUE(batch->events.empty());
    }
    EXPECT_FALSE(service.next());
    EXPECT_FALSE(service.next());
  }
}

/// A service that continues after iteration 6 schedules like iteration 7 of a service that began with 0.
TEST(SchedulingService, ResumesAsIfUninterrupted) {
  ServiceOptions options = deterministic();
  SchedulingService whole(service_input(make_scheduler("random")), options);
  for (int i = 0; i < 7; ++i) whole.next();
  options.first = 7;
  SchedulingService rest(service_input(make_scheduler("random")), options);
  for (std::uint64_t k = 7; k < 10; ++k) {
    const std::optional<ScheduledBatch> expected = whole.next();
    const std::optional<ScheduledBatch> found = rest.next();
    ASSERT_TRUE(expected && found);
    EXPECT_EQ(found->iteration, k);
    EXPECT_EQ(found->result.assignment.bin, expected->result.assignment.bin);
  }
}

TEST(SchedulingService, SchedulesAtMostItsLookahead) {
  for (const int depth : {1, 2, 5}) {
    for (ServiceOptions options : {deterministic(depth), live(depth)}) {
      std::atomic<std::uint64_t> asked{0};
      std::atomic<std::uint64_t> drawn{0};
      std::atomic<bool> too_far{false};
      ServiceInput input = service_input(make_scheduler("lpt"));
      input.draw = [&](std::uint64_t k) {
        // next() takes at most iteration `asked` - 1, and `depth` more follow it.
        if (k != drawn || k >= asked + static_cast<std::uint64_t>(depth)) too_far = true;
        ++drawn;
        return service_batch(k);
      };
      SchedulingService service(input, options);
      wait_for([&] { return drawn >= static_cast<std::uint64_t>(depth); });
      for (std::uint64_t k = 0; k < 40; ++k) {
        ++asked;
        EXPECT_EQ(service.next()->iteration, k);
        if (k % 10 == 0) wait_for([&] { return drawn >= asked + static_cast<std::uint64_t>(depth); });
      }
      service.stop();
      EXPECT_FALSE(too_far);
    }
  }
}

TEST(SchedulingService, SchedulesEachIterationWithTheCostModelOfItsTime) {
  for (const ServiceOptions& options : {deterministic(), live()}) {
    std::vector<std::shared_ptr<const CostModel>> costs(6);
    for (auto& cost : costs) cost = std::make_shared<testing::LinearCostModel>();
    std::atomic<int> others{0};
    std::atomic<int> solved{0};
    const auto lpt = make_scheduler("lpt");
    ServiceInput input = service_input(stub([&](const ScheduleRequest& request) {
                                         if (&request.cost != costs[request.iteration].get()) ++others;
                                         ++solved;
                                         return lpt->schedule(request);
                                       }),
                                       static_cast<int>(costs.size()));
    input.cost_at = [&](std::uint64_t k) { return costs[k]; };
    SchedulingService service(input, options);
    for (int k = 0; k < 6; ++k) {
      wait_for([&] { return solved > k; });
      ASSERT_TRUE(service.next());
    }
    EXPECT_EQ(others, 0);
  }
}

TEST(SchedulingService, RunsTheSchedulerWhileAnIterationIsExecuted) {
  std::atomic<int> solved{0};
  const auto lpt = make_scheduler("lpt");
  const auto scheduler = stub([&](const ScheduleRequest& request) {
    ++solved;
    return lpt->schedule(request);
  });
  SchedulingService service(service_input(scheduler), deterministic());
  for (int k = 0; k < 10; ++k) {
    ASSERT_TRUE(service.next());
    wait_for([&] { return solved >= k + 2; });  // not requested yet
  }
}

TEST(SchedulingService, LiveTakesLptAtOnceWhileTheSchedulerIsAtWork) {
  const auto lpt = make_scheduler("lpt");
  std::atomic<bool> at_work{false};
  std::atomic<int> stopped{0};
  const auto scheduler = stub([&](const ScheduleRequest& request) {
    at_work = true;
    wait_for_stop(request);
    ++stopped;
    return lpt->schedule(request);
  });
  SchedulingService service(service_input(scheduler, 20), live(2));
  while (!at_work) std::this_thread::yield();  // otherwise all may be taken before it begins
  for (std::uint64_t k = 0; k < 20; ++k) {
    const auto batch = service.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->result.assignment, direct(*lpt, k).assignment);
    EXPECT_TRUE(batch->events.empty());
  }
  service.stop();
  EXPECT_GT(stopped, 0);
}

/// LPT's assignment with two bins swapped: another assignment with the same objective.
ScheduleResult renamed(ScheduleResult result) {
  for (std::int32_t& bin : result.assignment.bin) bin = bin == 0 ? 1 : bin == 1 ? 0 : bin;
  return result;
}

TEST(SchedulingService, LiveTakesTheBestFoundSoFar) {
  const auto lpt = make_scheduler("lpt");
  std::atomic<int> published{0};
  const auto scheduler = stub([&](const ScheduleRequest& request) {
    const ScheduleResult seed = lpt->schedule(request);
    ScheduleResult found = renamed(seed);
    found.value *= 0.75;
    request.improved(found);
    ScheduleResult worse = seed;
    worse.value *= 1.5;
    request.improved(worse);
    ++published;
    wait_for_stop(request);
    return worse;
  });
  SchedulingService service(service_input(scheduler), live());
  for (int k = 0; k < 10; ++k) {
    wait_for([&] { return published == k + 1; });
    const auto batch = service.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->result.assignment, renamed(direct(*lpt, k)).assignment) << "iteration " << k;
    EXPECT_EQ(batch->result.value, direct(*lpt, k).value * 0.75);
    EXPECT_TRUE(batch->events.empty());
  }
  // The destructor ends the eleventh search.
  wait_for([&] { return published == 11; });
}

TEST(SchedulingService, LptIsReplacedByOtherObjectivesButNotByWorseValues) {
  ScheduleResult seed;
  seed.value = Seconds(2);
  const auto with = [&](double c_max, Objective objective, ScheduleStatus status) {
    ScheduleResult result = seed;
    result.value = Seconds(c_max);
    result.objective = objective;
    result.status = status;
    return result;
  };
  const auto heuristic = ScheduleStatus::heuristic;
  const auto infeasible = ScheduleStatus::infeasible;
  EXPECT_TRUE(replaces(seed, std::nullopt));
  EXPECT_TRUE(replaces(with(2, Objective::published, heuristic), seed));
  EXPECT_FALSE(replaces(with(3, Objective::published, heuristic), seed));
  EXPECT_TRUE(replaces(with(3, Objective::makespan, heuristic), seed));
  EXPECT_FALSE(replaces(with(1, Objective::published, infeasible), seed));
  EXPECT_TRUE(replaces(seed, with(1, Objective::published, infeasible)));
}

/// A scheduler that reports that there is no assignment.
std::shared_ptr<const Scheduler> blind() {
  return stub([](const ScheduleRequest&) {
    ScheduleResult result;
    result.status = ScheduleStatus::infeasible;
    result.reason = "none found";
    return result;
  });
}

TEST(SchedulingService, LiveWaitsForAnAssignmentIfTheHeuristicFindsNone) {
  const auto lpt = make_scheduler("lpt");
  const auto scheduler = stub([&](const ScheduleRequest& request) {
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    request.improved(lpt->schedule(request));
    wait_for_stop(request);
    return lpt->schedule(request);
  });
  ServiceInput input = service_input(scheduler);
  input.heuristic = blind();
  SchedulingService service(input, live());
  for (std::uint64_t k = 0; k < 10; ++k) {
    EXPECT_EQ(service.next()->result.assignment, direct(*lpt, k).assignment);
  }
}

TEST(SchedulingService, AnInfeasibleBatchIsReported) {
  for (const ServiceOptions& options : {deterministic(), live()}) {
    ServiceInput input = service_input(blind());
    input.heuristic = input.scheduler;
    SchedulingService service(input, options);
    const auto batch = service.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->result.status, ScheduleStatus::infeasible);
    EXPECT_EQ(batch->result.reason, "none found");
    EXPECT_TRUE(batch->events.empty());
  }
}

struct Misbehavior {
  std::string what;
  testing::StubScheduler::Function schedule;
  std::string message;
};

std::vector<Misbehavior> misbehaviors() {
  const auto with_bins = [](std::vector<std::int32_t> bins) {
    return [bins](const ScheduleRequest&) {
      ScheduleResult result;
      result.assignment = {2, 2, bins};
      return result;
    };
  };
  return {{"throws", [](const ScheduleRequest&) -> ScheduleResult { throw std::runtime_error("no memory"); },
           "no memory"},
          {"throws no exception", [](const ScheduleRequest&) -> ScheduleResult { throw 7; },
           "an exception of unknown type"},
          {"loses a sample", with_bins({0, 1, 2, 3, 0, 1, 2, 3}),
           "assignment: expected a bin for each of 9 samples, found 8"},
          {"leaves a bin empty", with_bins({0, 1, 2, 0, 1, 2, 0, 1, 2}), "assignment: bin 3 has no sample"}};
}

TEST(SchedulingService, FailingSchedulersDoNotStopTraining) {
  const auto lpt = make_scheduler("lpt");
  for (const Misbehavior& scheduler : misbehaviors()) {
    for (const ServiceOptions& options : {deterministic(2), live(2)}) {
      SchedulingService service(service_input(stub(scheduler.schedule), 6), options);
      std::vector<ScheduleEvent> events;
      for (std::uint64_t k = 0; k < 6; ++k) {
        const auto batch = service.next();
        ASSERT_TRUE(batch);
        EXPECT_EQ(batch->result.assignment, direct(*lpt, k).assignment) << scheduler.what;
        if (options.mode == ServiceMode::deterministic && direct(*lpt, k).gap() > 0) {
          EXPECT_EQ(batch->result.status, ScheduleStatus::fallback);
          EXPECT_EQ(batch->result.reason, scheduler.message);
        }
        events.insert(events.end(), batch->events.begin(), batch->events.end());
      }
      if (options.mode == ServiceMode::deterministic) {
        ASSERT_GE(events.size(), 6U);
        EXPECT_EQ(events[0].iteration, 0U);
        EXPECT_EQ(events[5].iteration, 5U);
      }
      for (const ScheduleEvent& event : events) {
        EXPECT_EQ(event.kind, ScheduleEventKind::solver_failed);
        EXPECT_EQ(event.message, "scheduler 'stub' failed: " + scheduler.message);
      }
    }
  }
}

TEST(SchedulingService, LiveEventsArriveWithALaterBatch) {
  std::atomic<int> failed{0};
  const auto scheduler = stub([&](const ScheduleRequest&) -> ScheduleResult {
    ++failed;
    throw std::runtime_error("out of luck");
  });
  SchedulingService service(service_input(scheduler), live());
  std::int64_t events = 0;
  while (events < 5) events += count(service.next()->events, ScheduleEventKind::solver_failed);
  EXPECT_GE(failed, 5);
}

TEST(SchedulingService, WaitingIsAnEvent) {
  std::atomic<bool> asked{false};
  ServiceInput input = service_input(make_scheduler("lpt"));
  input.draw = [&](std::uint64_t k) {
    if (k == 0) {
      wait_for([&] { return asked.load(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return service_batch(k);
  };
  ServiceOptions options = live();
  options.late_after = Seconds(1e-3);
  SchedulingService service(input, options);
  std::jthread executor([&] {
    const auto batch = service.next();
    ASSERT_EQ(count(batch->events, ScheduleEventKind::late), 1);
    EXPECT_EQ(batch->events[0].iteration, 0U);
    EXPECT_GT(batch->waited, options.late_after);
  });
  // By then the executor sleeps in next(), so it waits for at least 5 ms.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  asked = true;
}

TEST(SchedulingService, ABatchThatNoSchedulerCanTakeIsAnError) {
  for (const ServiceOptions& options : {deterministic(), live()}) {
    ServiceInput input = service_input(make_scheduler("lpt"));
    input.draw = [](std::uint64_t k) { return service_batch(k, k == 1 ? 3 : 9); };
    SchedulingService service(input, options);
    EXPECT_TRUE(service.next());
    for (int times = 0; times < 2; ++times) {
      try {
        service.next();
        FAIL() << "expected an error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::input);
        EXPECT_EQ(error.message(), "global batch of 3 samples cannot fill 4 bins (dp 2 x 2 microbatches)");
      }
    }
  }
}

TEST(SchedulingService, PassesOnErrorsOfDraw) {
  for (const ServiceOptions& options : {deterministic(), live()}) {
    ServiceInput input = service_input(make_scheduler("lpt"));
    input.draw = [](std::uint64_t k) -> std::shared_ptr<const Batch> {
      if (k == 2) throw std::runtime_error("the data set has gone");
      return service_batch(k);
    };
    SchedulingService service(input, options);
    EXPECT_TRUE(service.next());
    EXPECT_TRUE(service.next());
    EXPECT_THROW(service.next(), std::runtime_error);
  }
}

TEST(SchedulingService, OnlyStudiesFailOnWrongSchedulerRequests) {
  const auto scheduler = stub([](const ScheduleRequest&) -> ScheduleResult {
    throw Error(ErrorKind::usage, "this scheduler knows no makespan");
  });
  SchedulingService study(service_input(scheduler), deterministic());
  EXPECT_THROW(study.next(), Error);
  SchedulingService training(service_input(scheduler), live());
  for (int k = 0; k < 3; ++k) EXPECT_TRUE(training.next());
}

TEST(SchedulingService, NeedsADepth) {
  EXPECT_THROW(SchedulingService(service_input(make_scheduler("lpt")), deterministic(0)), Error);
}

}  // namespace scheduling_service_test
}  // namespace dflop
