// A SchedulingService is the AssignmentSource that schedules the iterations to come while one is executed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/scheduler.hpp"

namespace dflop {

enum class ServiceMode : std::uint8_t {
  /// next() waits until the scheduler is done, as studies need: same seed, same bytes.
  deterministic,
  /// next() takes what there is, as training needs: LPT's assignment, or a better one that the scheduler has
  /// found by then.
  live,
};

/// A ServiceInput is what is scheduled and how. All of it is owned, as a scheduler that never returns may
/// outlive the service.
struct ServiceInput {
  /// This returns the samples of an iteration, null after the last. It is called once for each, in order,
  /// from a thread of the service, which waits for it to return.
  std::function<std::shared_ptr<const std::vector<Sample>>(std::uint64_t iteration)> draw;
  std::shared_ptr<const Scheduler> scheduler;
  Plan plan;
  ModelSpec model;
  std::shared_ptr<const CostModel> cost;
  /// This returns what iteration `iteration` is scheduled with in the place of `cost`. It is asked for right
  /// after draw() and in its thread; null: `cost`.
  std::function<std::shared_ptr<const CostModel>(std::uint64_t iteration)> cost_at = nullptr;
  /// This scheduler is quick and sure, for the assignment that is ready at once; null: "lpt".
  std::shared_ptr<const Scheduler> heuristic = nullptr;
};

struct ServiceOptions {
  ServiceMode mode = ServiceMode::deterministic;
  /// At most so many iterations are drawn and scheduled ahead of the one that is executed; at least 1.
  int depth = 1;
  std::uint64_t seed = 0;
  std::uint64_t first = 0;     ///< iteration, as requests and results number them: of a run that goes on
  ScheduleLimits limits = {};  ///< of every request
  // These are read in live mode alone.
  Seconds late_after{1e-3};   ///< a longer wait in next() is an event
  Seconds stall_after{0.25};  ///< a scheduler is left behind so long after it should have ended
  int most_stalled = 4;       ///< threads left behind; beyond that there is no scheduler but LPT
};

/// Returns whether what a scheduler found is to be taken in the place of what there is: not if that is
/// feasible and the other is not, or if both have one objective and the other's value is larger.
bool replaces(const ScheduleResult& found, const std::optional<ScheduleResult>& best);

/// A SchedulingService has two threads: one draws batches, and in live mode has LPT's assignment of each
/// ready at once; the other runs the scheduler on them, one after the other. Neither goes further ahead of
/// next() than `depth` iterations.
///
/// In live mode a scheduler is asked to stop when its iteration is taken. One that does not return
/// `stall_after` later (or so long after its time limit) is left behind in its thread, with what it refers
/// to, and a new thread goes on with the next iteration. Whatever a scheduler throws, or returns against the
/// rules, is an event, and LPT's assignment is taken, with status `fallback`. Only in deterministic mode are
/// its errors of usage and input passed on: a study should say what is wrong with what it was asked.
///
/// An assignment that a scheduler found replaces LPT's, unless both have one objective and LPT's is smaller.
class SchedulingService final : public AssignmentSource {
 public:
  /// @throws Error (usage) if the depth is not positive.
  SchedulingService(ServiceInput input, const ServiceOptions& options);

  /// Does as stop().
  ~SchedulingService() override { stop(); }
  SchedulingService(const SchedulingService&) = delete;
  SchedulingService& operator=(const SchedulingService&) = delete;

  /// Returns the next iteration, to one thread at a time; nothing after stop().
  /// @throws what draw() threw, or Error (input) where LPT cannot schedule the batch either; the same again
  /// when it is called again.
  std::optional<ScheduledBatch> next() override;

  /// Ends all work; may be called from any thread, once or more. Returns as soon as draw() does and, in
  /// deterministic mode, the scheduler, which is asked to stop; in live mode it is waited for `stall_after`.
  void stop();

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace dflop
