// This file prepares the next step while the current one runs: it takes the schedule, loads contents, and
// makes the Program and the ranks' inputs.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>

#include "backend/content/content_loader.hpp"
#include "backend/run/live_executor.hpp"
#include "backend/world.hpp"
#include "core/iteration/iteration.hpp"
#include "core/scheduler.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/training/content_ahead.hpp"

namespace dflop {

/// A PreparedStep holds everything needed to run a step, and how long the loop waited for it.
struct PreparedStep {
  ScheduledBatch batch;
  Iteration iteration;
  StepInputs inputs;                   ///< for the ranks; empty: they make them when the step begins
  Seconds waited{0};                   ///< for the schedule
  std::optional<Seconds> data_waited;  ///< for contents, if they are loaded
};

/// StepsToPrepare describes the run whose steps are prepared. Everything it refers to must outlive the
/// preparation.
struct StepsToPrepare {
  const Plan& plan;
  const Target& target;
  std::shared_ptr<const CostModel> cost;  ///< used to make the Programs
  World& world;
  const LiveExecutor& executor;
  ContentLoader* loader;  ///< null: contents are made up
  BatchStream batches;    ///< begins with the first step's batch
  bool are_known_before;  ///< whether schedules are independent of when they are requested
};

/// StepsAhead prepares the steps of a run, one after the other. On asynchronous devices a thread prepares the
/// next step, which takes memory for the inputs of one more step. On other devices, or if the schedule is not
/// known in advance, a step is prepared when it is taken. All processes of the world make the same calls.
class StepsAhead {
 public:
  /// `source` must outlive this object. To end early, its next() has to return.
  StepsAhead(StepsToPrepare steps, AssignmentSource& source);

  /// Begins to prepare a step, after the previous one was taken.
  void begin(std::int64_t step);
  /// Takes the schedule of the begun step if it is not known in advance. @throws as the source
  void take_schedule();
  /// Waits for the begun step, after take_schedule(). It does not communicate with other processes.
  /// @throws errors of its preparation: Error (input) if no schedule obeys the caps, and as
  /// ContentLoader::wait(), make_iteration() and LiveExecutor::make_inputs()
  PreparedStep take();

 private:
  using Clock = std::chrono::steady_clock;

  /// A Preparation holds a step, and the times when its schedule and its contents were ready.
  struct Preparation {
    PreparedStep step;
    Clock::time_point scheduled;
    Clock::time_point loaded;
  };

  void begin_content();
  Preparation prepare(std::int64_t step);

  StepsToPrepare steps_;
  AssignmentSource& source_;
  std::optional<ContentAhead> content_;
  bool takes_ahead_ = false;  ///< whether to take a schedule when the preparation of its step begins
  bool has_thread_ = false;   ///< whether a thread does everything else
  std::optional<ScheduledBatch> batch_;
  std::future<Preparation> coming_;  // the latest preparation; its destructor waits for the thread
};

}  // namespace dflop
