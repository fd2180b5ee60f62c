// A SchedulingService is the AssignmentSource that schedules upcoming iterations while another one is
// executed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/scheduler.hpp"

namespace dflop {

enum class ServiceMode : std::uint8_t {
  /// next() waits until the scheduler is done, so that studies are reproducible: same seed, same bytes.
  deterministic,
  /// next() returns what is ready, as training needs: LPT's assignment, or a better one that the
  /// scheduler has found by then.
  live,
};

/// A ServiceInput says what is scheduled and how. The service owns or shares all of it, because a scheduler
/// that never returns may outlive the service.
struct ServiceInput {
  /// Returns the samples of an iteration, null after the last. It is called once for each, in order, from a
  /// thread of the service, which waits for it to return.
  std::function<std::shared_ptr<const std::vector<Sample>>(std::uint64_t iteration)> draw;
  std::shared_ptr<const Scheduler> scheduler;
  Plan plan;
  ModelSpec model;
  std::shared_ptr<const CostModel> cost;
  /// Returns the cost model for iteration `iteration`, which replaces `cost`. It is called right after
  /// draw(), in the same thread; null: `cost`.
  std::function<std::shared_ptr<const CostModel>(std::uint64_t iteration)> cost_at = nullptr;
  /// This fast and reliable scheduler makes the assignment that is ready at once; null: "lpt".
  std::shared_ptr<const Scheduler> heuristic = nullptr;
};

struct ServiceOptions {
  ServiceMode mode = ServiceMode::deterministic;
  /// At most this many iterations are drawn and scheduled ahead of the one that is executed; at least 1.
  int depth = 1;
  std::uint64_t seed = 0;
  std::uint64_t first = 0;     ///< number of the first iteration in requests and results, for a resumed run
  ScheduleLimits limits = {};  ///< of every request
  // The following are used only in live mode.
  Seconds late_after{1e-3};   ///< a longer wait in next() is an event
  Seconds stall_after{0.25};  ///< a scheduler is abandoned this long after it should have ended
  int most_stalled = 4;       ///< max abandoned threads; beyond that only LPT schedules
};

/// Returns whether a scheduler's result should replace the current one: not if the current one is feasible
/// and the found one is not, or if both have one objective and the found value is larger.
bool replaces(const ScheduleResult& found, const std::optional<ScheduleResult>& best);

/// A SchedulingService has two threads. One draws batches, and in live mode has LPT's assignment of each
/// ready at once. The other runs the scheduler on them, one after the other. Neither goes further ahead of
/// next() than `depth` iterations.
///
/// In live mode a scheduler is asked to stop when its iteration is taken. If it does not return within
/// `stall_after` (or this long after its time limit), it is abandoned in its thread, with everything it
/// refers to, and a new thread continues with the next iteration. If a scheduler throws or returns an invalid
/// result, that is an event, and LPT's assignment is used, with status `fallback`. Only in deterministic mode
/// are its usage and input errors passed on, because a study should report what is wrong with its request.
///
/// An assignment that a scheduler found replaces LPT's, unless both have one objective and LPT's is smaller.
class SchedulingService final : public AssignmentSource {
 public:
  /// @throws Error (usage) if the depth is not positive.
  SchedulingService(ServiceInput input, const ServiceOptions& options);

  /// Calls stop().
  ~SchedulingService() override { stop(); }
  SchedulingService(const SchedulingService&) = delete;
  SchedulingService& operator=(const SchedulingService&) = delete;

  /// Returns the next iteration; nothing after stop(). Only one thread may call it at a time.
  /// @throws what draw() threw, or Error (input) if LPT cannot schedule the batch either; calling it again
  /// throws the same again.
  std::optional<ScheduledBatch> next() override;

  /// Ends all work; any thread may call it, also repeatedly. Returns as soon as draw() does and, in
  /// deterministic mode, the scheduler, which is asked to stop; in live mode it waits for the scheduler for
  /// at most `stall_after`.
  void stop();

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace dflop
