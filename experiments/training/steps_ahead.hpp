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

/// A PreparedStep holds everything needed to run a step, and the times that the loop waited for its parts.
struct PreparedStep {
  ScheduledBatch batch;
  Iteration iteration;
  StepInputs inputs;  ///< inputs of the ranks; empty: the ranks make them when the step begins
  Seconds waited{0};  ///< time that the loop waited for the schedule
  /// Time that the loop waited for contents; none if contents are made up.
  std::optional<Seconds> data_waited;
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
  bool are_known_before;  ///< whether a step's schedule does not depend on the previous step
};

/// StepsAhead prepares the steps of a run, one after the other. On asynchronous devices, a thread prepares
/// the next step during the current one, which takes memory for the inputs of one more step. On other
/// devices, or if the schedule is not known in advance, take() prepares the step. All processes of the world
/// make the same calls.
class StepsAhead {
 public:
  /// `source` must outlive this object. The destructor waits until a running source.next() returns.
  StepsAhead(StepsToPrepare steps, AssignmentSource& source);

  /// Begins to prepare a step. Call it after take() of the previous step.
  void begin(std::int64_t step);
  /// Gets the schedule of the begun step from the source if the schedule is not known in advance. @throws
  /// what the source throws
  void take_schedule();
  /// Waits for the begun step and returns it. Call it after take_schedule(). It does not communicate with
  /// other processes.
  /// @throws Error (input) if no schedule obeys the caps; what ContentLoader::wait(), make_iteration() and
  /// LiveExecutor::make_inputs() throw
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
  bool takes_ahead_ = false;  ///< whether begin() gets the step's schedule
  bool has_thread_ = false;   ///< whether a thread prepares the rest of a step
  std::optional<ScheduledBatch> batch_;
  std::future<Preparation> coming_;  // the latest preparation; its destructor waits for the thread
};

}  // namespace dflop
