// A Scheduler divides the samples of one global batch into microbatches. A training loop gets these
// microbatches from an AssignmentSource.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/cost_model.hpp"
#include "core/names.hpp"
#include "core/plan.hpp"
#include "core/schedule_kinds.hpp"
#include "core/solution.hpp"

namespace dflop {

/// This memory is larger than any GPU's, so it does not limit orders that depend on memory.
inline constexpr Bytes kAnyMemory{std::int64_t{1} << 60};

/// ScheduleLimits hold the objective of a schedule, the limits it must obey, and when the search for it ends.
/// The command line passes them unchanged to the scheduler.
struct ScheduleLimits {
  /// This is the objective that the schedule minimizes. If it is not set, the schedule minimizes the plan's
  /// objective or, if the plan has none, the scheduler's default (solver/schedulers/methods.cpp).
  std::optional<Objective> objective = {};
  /// This is the order of the bins. If it is not set, it is `alike` for schedulers that look at costs,
  /// otherwise the order in which the bins were found. Searches that minimize the makespan ignore it because
  /// they choose the order themselves.
  std::optional<BinOrder> bin_order = {};
  /// No bin may have more LLM tokens than this.
  std::optional<std::int64_t> token_cap = {};
  /// No rank may need more usable memory than this at any time. If it is not set, memory is not checked.
  std::optional<Bytes> memory = {};
  /// This is the usable memory of a GPU for pipeline orders that depend on it. If it is not set, they use
  /// `memory` or, if that is not set either, kAnyMemory.
  std::optional<Bytes> usable_memory = {};
  /// The search ends after this wall-clock time instead of after a number of steps or nodes. Without a time
  /// limit the same request always gives the same result.
  std::optional<Seconds> time_limit = {};
  /// A search takes this many steps. If neither steps, node_budget nor time_limit is set, a search ends when
  /// it is within 0.1 % of its bound, or after as much work as takes a tenth of the predicted iteration on a
  /// slow machine. The work is counted, not measured.
  std::optional<std::int64_t> steps = {};
  /// An integer program takes at most this many branch-and-bound nodes.
  std::optional<std::int64_t> node_budget = {};

  /// Returns the memory that determines the plan's order.
  Bytes memory_of_order() const { return usable_memory.value_or(memory.value_or(kAnyMemory)); }
};

/// A ScheduleResult is one batch divided into microbatches. For the makespan objective, `value` is the
/// scheduler's estimate, which assumes durations affine in the work. `bound` bounds the true makespan, so the
/// gap and `optimal` count as proven only after a run of the assignment has confirmed the value.
struct ScheduleResult : Solution {
  Assignment assignment = {};  ///< empty if infeasible
  Objective objective = Objective::published;
};

/// A ScheduleRequest is one batch to schedule under a plan.
struct ScheduleRequest {
  std::span<const Sample> samples;  ///< one global batch
  const Plan& plan;
  const ModelSpec& model;
  const CostModel& cost;
  std::uint64_t seed = 0;
  std::uint64_t iteration = 0;
  ScheduleLimits limits = {};
  /// If a stop is requested here, the search ends soon and returns the best assignment found so far.
  std::stop_token stop = {};
  /// If set, the scheduler calls this from the calling thread with each complete assignment that improves on
  /// the previous one.
  std::function<void(const ScheduleResult&)> improved = {};
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual std::string_view name() const = 0;

  /// Returns an assignment that puts every sample in exactly one bin, leaves no bin empty and obeys all caps,
  /// or a result with status infeasible. The same request gives the same result unless it has a time limit or
  /// is stopped.
  /// @throws Error (input) if there are fewer samples than bins.
  virtual ScheduleResult schedule(const ScheduleRequest& request) const = 0;
};

/// A ScheduleEventKind says what went wrong with a schedule while training continued.
enum class ScheduleEventKind : std::uint8_t {
  solver_failed,   ///< the scheduler threw or broke a rule; a heuristic's assignment was used instead
  solver_stalled,  ///< the scheduler did not return in time and was abandoned
  late,            ///< the training loop had to wait because no assignment was ready
};

template <>
inline constexpr NameTable<ScheduleEventKind, 3> kNames<ScheduleEventKind> = {
    {{ScheduleEventKind::solver_failed, "solver_failed"},
     {ScheduleEventKind::solver_stalled, "solver_stalled"},
     {ScheduleEventKind::late, "late"}}};

struct ScheduleEvent {
  std::uint64_t iteration = 0;
  ScheduleEventKind kind = ScheduleEventKind::solver_failed;
  std::string message;
};

/// A ScheduledBatch is the batch of one iteration, ready to be lowered and run.
struct ScheduledBatch {
  std::uint64_t iteration = 0;
  std::shared_ptr<const std::vector<Sample>> samples;  ///< the global batch, exactly as it was drawn
  ScheduleResult result;                               ///< assigns each sample once
  std::vector<ScheduleEvent> events;                   ///< events since the previous batch, of any iteration
  Seconds scheduling{0};  ///< time the scheduler took; zero if nothing waited for it
  Seconds waited{0};      ///< time the training loop spent in next()
};

/// An AssignmentSource gives a training loop its microbatches. Simulations and the live backend share this
/// interface, so a loop does not know whether schedules are computed during the run or read from a file.
class AssignmentSource {
 public:
  virtual ~AssignmentSource() = default;

  /// Returns the batch of the next iteration, starting with the first; nullopt after the last.
  /// @throws Error (input) if a batch cannot be scheduled at all, for example because it has fewer samples
  /// than bins.
  virtual std::optional<ScheduledBatch> next() = 0;
};

}  // namespace dflop
