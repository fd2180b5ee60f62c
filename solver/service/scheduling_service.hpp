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
  /// next() returns as soon as any assignment is ready, as training needs: LPT's assignment, or a better one
  /// that the scheduler has found by then.
  live,
};

/// A ServiceInput has everything that the service schedules with. The service owns or shares all of it,
/// because a scheduler that never returns may outlive the service.
struct ServiceInput {
  /// Returns the samples of an iteration; null after the last iteration. A thread of the service calls it
  /// once for each iteration, in order, and waits for it to return.
  std::function<std::shared_ptr<const std::vector<Sample>>(std::uint64_t iteration)> draw;
  std::shared_ptr<const Scheduler> scheduler;
  Plan plan;
  ModelSpec model;
  std::shared_ptr<const CostModel> cost;
  /// Returns the cost model for an iteration, which replaces `cost`. It is called right after draw(), in the
  /// same thread. If it is empty, `cost` is used.
  std::function<std::shared_ptr<const CostModel>(std::uint64_t iteration)> cost_at = nullptr;
  /// This scheduler makes the assignment that is ready at once, so it must be fast and reliable. If null, it
  /// is "lpt". Comments call its assignment LPT's.
  std::shared_ptr<const Scheduler> heuristic = nullptr;
};

struct ServiceOptions {
  ServiceMode mode = ServiceMode::deterministic;
  /// The lookahead: at most this many iterations are drawn and scheduled ahead of the executed one; at least
  /// 1.
  int depth = 1;
  std::uint64_t seed = 0;
  std::uint64_t first = 0;     ///< number of the first iteration in requests and results, for a resumed run
  ScheduleLimits limits = {};  ///< of every request
  // Only live mode uses the members below.
  Seconds late_after{1e-3};   ///< a longer wait in next() is recorded as an event
  Seconds stall_after{0.25};  ///< a scheduler is abandoned this long after it should have ended
  int most_stalled = 4;       ///< max number of abandoned threads; after that, only LPT schedules
};

/// Returns whether a scheduler's result, `found`, should replace the current one, `best`. It should not if
/// `best` is feasible and `found` is not, or if both have the same objective and the value of `found` is
/// larger.
bool replaces(const ScheduleResult& found, const std::optional<ScheduleResult>& best);

/// A SchedulingService has two threads. One draws batches and, in live mode, makes LPT's assignment of each
/// at once. The other runs the scheduler on these batches, one after the other. Both are at most `depth`
/// iterations ahead of next().
///
/// In live mode a scheduler is asked to stop when its iteration is taken. If it does not return within
/// `stall_after` (or this long after its time limit), the service abandons it in its thread, with everything
/// it refers to, and a new thread continues with the next iteration. If a scheduler throws or returns an
/// invalid result, the service records an event and uses LPT's assignment, with status `fallback`. Only in
/// deterministic mode does it pass on the scheduler's usage and input errors, because a study should report
/// errors in its request.
///
/// An assignment that a scheduler found replaces LPT's assignment, unless both have the same objective and
/// LPT's value is smaller.
class SchedulingService final : public AssignmentSource {
 public:
  /// @throws Error (usage) if the depth is not positive.
  SchedulingService(ServiceInput input, const ServiceOptions& options);

  /// Calls stop().
  ~SchedulingService() override { stop(); }
  SchedulingService(const SchedulingService&) = delete;
  SchedulingService& operator=(const SchedulingService&) = delete;

  /// Returns the next iteration; nullopt after stop() or the last iteration. Only one thread may call it at a
  /// time.
  /// @throws what draw() threw, or Error (input) if LPT cannot schedule the batch either. Later calls throw
  /// the same again.
  std::optional<ScheduledBatch> next() override;

  /// Ends all work. Any thread may call it, also repeatedly. It asks the scheduler to stop and waits for
  /// draw(). It also waits for the scheduler: in live mode at most `stall_after`, in deterministic mode
  /// without limit.
  void stop();

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace dflop
