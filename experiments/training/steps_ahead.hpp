// The next step is prepared while one runs: its schedule is taken, its contents are loaded, its Program and
// what ranks read are made.
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
#include "experiments/studies/study.hpp"
#include "experiments/training/content_ahead.hpp"

namespace dflop {

/// A PreparedStep has what a step runs, and for how long the loop waited for it.
struct PreparedStep {
  ScheduledBatch batch;
  Iteration iteration;
  StepInputs inputs;                   ///< of its ranks; none: they make them when it begins
  Seconds waited{0};                   ///< for the schedule
  std::optional<Seconds> data_waited;  ///< for contents, where they are loaded
};

/// StepsToPrepare say of which run steps are prepared. What is referred to outlives the preparing.
struct StepsToPrepare {
  const Plan& plan;
  const Target& target;
  std::shared_ptr<const CostModel> cost;  ///< that makes the Programs
  World& world;
  const LiveExecutor& executor;
  ContentLoader* loader;  ///< null: contents are made up
  BatchStream batches;    ///< which begins with the first step's batch
  bool are_known_before;  ///< schedules of steps do not depend on when they are asked for
};

/// StepsAhead prepare the steps of a run, one after the other. On devices that run asynchronously a step
/// is prepared in a thread, which takes memory for the inputs of one step more; on others, and where the
/// schedule is not known before, when it is taken. All processes of the world make the same calls.
class StepsAhead {
 public:
  /// The source outlives this; to end early, its next() has to return.
  StepsAhead(StepsToPrepare steps, AssignmentSource& source);

  /// Begins to prepare a step. The one before it has been taken.
  void begin(std::int64_t step);
  /// Takes the schedule of the step that was begun, where it is not known before. @throws as the source
  void take_schedule();
  /// Waits for the step that was begun, after take_schedule(). Processes need not hear of each other.
  /// @throws what preparing it has thrown: Error (input) where no schedule obeys the caps, and as
  /// ContentLoader::wait(), make_iteration() and LiveExecutor::make_inputs()
  PreparedStep take();

 private:
  using Clock = std::chrono::steady_clock;

  /// A Preparation has a step, and when its schedule and its contents were there.
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
  bool takes_ahead_ = false;  ///< schedules, when a step begins to be prepared
  bool has_thread_ = false;   ///< which takes the others
  std::optional<ScheduledBatch> batch_;
  std::future<Preparation> coming_;  // the last, whose end waits for the thread
};

}  // namespace dflop
