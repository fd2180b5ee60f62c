// Schedulers that follow a test's instructions, and batches for a service.
#pragma once

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "solver/service/scheduling_service.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop::testing {

class StubScheduler final : public Scheduler {
 public:
  using Function = std::function<ScheduleResult(const ScheduleRequest&)>;

  explicit StubScheduler(Function function) : function_(std::move(function)) {}
  std::string_view name() const override { return "stub"; }
  ScheduleResult schedule(const ScheduleRequest& request) const override { return function_(request); }

 private:
  Function function_;
};

inline std::shared_ptr<const Scheduler> stub(StubScheduler::Function function) {
  return std::make_shared<StubScheduler>(std::move(function));
}

/// 9 samples for 2 dp ranks x 2 microbatches.
inline Plan service_plan() {
  return disaggregated_plan(small_model(2, 4), 9, 1, 2, 2);
}

/// The batch of an iteration, the same for every call.
inline std::shared_ptr<const Batch> service_batch(std::uint64_t iteration, int samples = 9) {
  Random random(99, iteration);
  return std::make_shared<const Batch>(small_random_batch(random, samples));
}

/// Input with this number of iterations; endless if negative.
inline ServiceInput service_input(std::shared_ptr<const Scheduler> scheduler, int iterations = -1) {
  const auto draw = [iterations](std::uint64_t k) {
    const bool more = iterations < 0 || k < static_cast<std::uint64_t>(iterations);
    return more ? service_batch(k) : nullptr;
  };
  return {draw, std::move(scheduler), service_plan(), small_model(2, 4), std::make_shared<LinearCostModel>()};
}

inline ServiceOptions live(int depth = 1) {
  ServiceOptions options;
  options.mode = ServiceMode::live;
  options.depth = depth;
  options.seed = 5;
  options.late_after = Seconds(1e6);  // tests run on busy machines
  options.stall_after = Seconds(1e6);
  return options;
}

inline ServiceOptions deterministic(int depth = 1) {
  ServiceOptions options;
  options.depth = depth;
  options.seed = 5;
  return options;
}

/// The result of a scheduler for service_batch(iteration).
inline ScheduleResult direct(const Scheduler& scheduler, std::uint64_t iteration,
                             const ScheduleLimits& limits = {}) {
  const LinearCostModel cost;
  const ModelSpec model = small_model(2, 4);
  return scheduler.schedule({*service_batch(iteration), service_plan(), model, cost, 5, iteration, limits});
}

/// Waits without a limit: a test that fails here is ended by its timeout.
inline void wait_for(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

}  // namespace dflop::testing
