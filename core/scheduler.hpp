// Scheduler: puts the samples of one global batch into microbatches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/cost_model.hpp"
#include "core/plan.hpp"

namespace dflop {

/// What a schedule is to make small.
enum class Objective : std::uint8_t {
  published,  ///< the largest load of any bin, encoder or LLM; each bin carries its samples' encoder work
              ///< alone
  bins,       ///< the same with the encoder work of a microbatch shared by all its bins, as it is executed
  makespan,   ///< the duration of the iteration
};

/// How a bound was proven.
enum class BoundKind : std::uint8_t {
  none,
  simple,           ///< sums, largest items, counts; for the makespan: the work of each stage
  linear_program,   ///< of the pipeline's makespan over fractional loads
  integer_program,  ///< branch and bound
};

enum class ScheduleStatus : std::uint8_t {
  heuristic,   ///< a solution without proof
  optimal,     ///< proven
  node_limit,  ///< best found when the node or step budget ended
  time_limit,  ///< best found when the time ended
  fallback,    ///< the method asked for refused or failed; a heuristic's solution
  infeasible,  ///< no assignment obeys the caps, or none was found; ScheduleResult::reason says which
};

std::string_view to_string(Objective objective);
std::string_view to_string(BoundKind kind);
std::string_view to_string(ScheduleStatus status);
std::optional<Objective> objective_from_string(std::string_view name);

struct ScheduleResult {
  Assignment assignment;  ///< without bins if infeasible
  Objective objective = Objective::published;
  /// The objective's value. Of a makespan as the scheduler sees it, whose durations are affine in the work:
  /// the bound is of the true makespan, and gap and `optimal` are proven when a run of the assignment has
  /// given that.
  Seconds c_max{0};
  Seconds bound{0};  ///< no assignment has a smaller one
  BoundKind bound_kind = BoundKind::simple;
  ScheduleStatus status = ScheduleStatus::heuristic;
  std::string reason;  ///< of infeasible and fallback

  /// (c_max - bound) / bound, proven.
  double gap() const { return bound.count() > 0 ? (c_max - bound) / bound : 0.0; }
};

struct ScheduleRequest {
  std::span<const Sample> samples;  ///< one global batch
  const Plan& plan;
  const ModelSpec& model;
  const CostModel& cost;
  std::uint64_t seed = 0;
  std::uint64_t iteration = 0;
  /// Wall-clock limit; without it only deterministic budgets hold.
  std::optional<Seconds> time_limit = {};
  /// None: the scheduler's own (published for those of the published system, makespan for "makespan" and
  /// "auto").
  std::optional<Objective> objective = {};
  /// LLM tokens of any bin at most.
  std::optional<std::int64_t> token_cap = {};
  /// Usable memory of a GPU; microbatches in flight must not need more. None: not looked at.
  std::optional<Bytes> memory = {};
  /// Ends the search soon after it is asked to; the best found so far is returned.
  std::stop_token stop = {};
  /// Called with each complete and better assignment, from the calling thread; may be empty.
  std::function<void(const ScheduleResult&)> improved = {};
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual std::string_view name() const = 0;

  /// Every sample in exactly one bin, no bin empty, all caps obeyed; or status infeasible. The same request
  /// gives the same result unless it has a time limit or is stopped.
  /// @throws Error (input) if there are fewer samples than bins.
  virtual ScheduleResult schedule(const ScheduleRequest& request) const = 0;
};

}  // namespace dflop
