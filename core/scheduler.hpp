// A Scheduler puts the samples of one global batch into microbatches. An AssignmentSource is where a training
// loop gets them from.
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

/// More than any GPU has: orders that depend on memory are not limited by it.
inline constexpr Bytes kAnyMemory{std::int64_t{1} << 60};

/// ScheduleLimits are what a schedule is to make small, what it must obey, and when the search for it ends.
/// They are passed whole from the command line to the scheduler.
struct ScheduleLimits {
  /// This is to be small. None: the objective that the plan was made for, or the scheduler's own where the
  /// plan names none (solver/schedulers/methods.cpp).
  std::optional<Objective> objective = {};
  /// Bins come in this order. None: alike from schedulers that look at costs, else as they were found.
  /// Searches for the makespan, of which the order is a part, do not read it.
  std::optional<BinOrder> bin_order = {};
  /// No bin may have more LLM tokens.
  std::optional<std::int64_t> token_cap = {};
  /// No rank may need more than this usable memory of a GPU at any time. None: it is not looked at.
  std::optional<Bytes> memory = {};
  /// GPUs have so much usable memory, for plans whose order depends on it. None: `memory`, and without that
  /// kAnyMemory.
  std::optional<Bytes> usable_memory = {};
  /// The search ends after this wall-clock time, in place of steps and nodes; without it the same request has
  /// the same result.
  std::optional<Seconds> time_limit = {};
  /// A search takes so many steps. None: as many as it thinks fit.
  std::optional<std::int64_t> steps = {};
  /// An integer program takes so many branch-and-bound nodes. None: as many as it thinks fit.
  std::optional<std::int64_t> node_budget = {};

  /// Returns the memory by which a plan's order is made.
  Bytes memory_of_order() const { return usable_memory.value_or(memory.value_or(kAnyMemory)); }
};

/// A ScheduleResult is one batch in microbatches. The value of a makespan is as the scheduler sees it, whose
/// durations are affine in the work: the bound is of the true makespan, and gap and `optimal` are proven when
/// a run of the assignment has given that.
struct ScheduleResult : Solution {
  Assignment assignment = {};  ///< without bins if infeasible
  Objective objective = Objective::published;
};

/// A ScheduleRequest is one batch to be scheduled under a plan.
struct ScheduleRequest {
  std::span<const Sample> samples;  ///< one global batch
  const Plan& plan;
  const ModelSpec& model;
  const CostModel& cost;
  std::uint64_t seed = 0;
  std::uint64_t iteration = 0;
  ScheduleLimits limits = {};
  /// The search ends soon after a stop is asked for here; the best found so far is returned.
  std::stop_token stop = {};
  /// The scheduler calls this, if set, with each complete and better assignment, from the calling thread.
  std::function<void(const ScheduleResult&)> improved = {};
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual std::string_view name() const = 0;

  /// Returns every sample in exactly one bin, no bin empty, all caps obeyed; or status infeasible. The same
  /// request gives the same result unless it has a time limit or is stopped.
  /// @throws Error (input) if there are fewer samples than bins.
  virtual ScheduleResult schedule(const ScheduleRequest& request) const = 0;
};

/// ScheduleEventKind says what went wrong with a schedule while training went on.
enum class ScheduleEventKind : std::uint8_t {
  solver_failed,   ///< the scheduler threw, or its assignment breaks a rule; a heuristic's was taken
  solver_stalled,  ///< it did not return when its time was over, and was left behind
  late,            ///< the training loop had to wait, as no assignment was there when it asked
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

/// A ScheduledBatch is one iteration, ready to be lowered and run.
struct ScheduledBatch {
  std::uint64_t iteration = 0;
  std::shared_ptr<const std::vector<Sample>> samples;  ///< the global batch, exactly as it was drawn
  ScheduleResult result;                               ///< places each of them once
  std::vector<ScheduleEvent> events;                   ///< since the batch before; of any iteration
  Seconds scheduling{0};  ///< that the scheduler took; zero where it was not waited for
  Seconds waited{0};      ///< that next() took of the training loop's time
};

/// An AssignmentSource is where a training loop gets its microbatches from. Simulations and the live backend
/// read the same interface, so that a loop does not know whether a schedule is made while it runs, or read
/// from a file.
class AssignmentSource {
 public:
  virtual ~AssignmentSource() = default;

  /// Returns the iterations one after the other, from the first; nothing after the last.
  /// @throws Error (input) where a batch cannot be scheduled at all, as with fewer samples than bins.
  virtual std::optional<ScheduledBatch> next() = 0;
};

}  // namespace dflop
