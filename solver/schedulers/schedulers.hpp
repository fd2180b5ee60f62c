// This header makes schedulers by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/scheduler.hpp"
#include "solver/schedulers/methods.hpp"

namespace dflop {

/// SchedulerOptions stay the same for all requests.
struct SchedulerOptions {
  /// If true, the bound comes from the makespan's linear program; otherwise from simple arguments. With a
  /// time limit the program is solved once per plan, after the search of its first batch and outside the
  /// limit; a training loop that needs no proof can turn it off.
  bool prove = true;
};

/// Makes the scheduler that runs a method (solver/schedulers/methods.hpp) on the samples of a batch, with the
/// costs of costmodel/sample_costs.hpp. Each iteration has its own stream of the random seed. For the
/// makespan see solver/plan_problem/makespan.hpp. Several threads may call the scheduler at once.
///
/// It minimizes the objective in the request's limits; otherwise the plan's objective, unless the method
/// keeps its own; otherwise the method's default. If the limits have a memory, no result needs more on any
/// rank, in the order that the request's cost model and that memory determine (memory_peak()). An assignment
/// that needs more is made again under lower caps, replaced by LPT's with status fallback, or the result is
/// infeasible.
/// @throws Error (usage) for a name that no method has.
std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options = {});

/// Returns the scheduler that represents another when only memory matters: LPT for schedulers that look at
/// costs, because within memory they fall back on it; all others represent themselves.
/// @throws Error (usage) for a name that no method has.
std::string_view filler_for(std::string_view name);

/// Returns the names of all methods in listing order, or only of methods with this budget.
std::vector<std::string_view> scheduler_names(std::optional<Budget> budget = {});

/// Checks the number of samples. @throws Error (input) if there are fewer samples than bins in the plan.
void require_enough_samples(std::size_t samples, const Plan& plan);

/// Makes the assignment of common training loops, which ignore costs: shuffles the samples by (seed,
/// iteration) and divides them into consecutive bins whose counts differ by at most one, the larger ones
/// first. The scheduler "random" makes the same assignment if there are no caps.
/// @throws Error (input) if there are fewer samples than bins.
Assignment random_assignment(std::size_t samples, const Plan& plan, std::uint64_t seed,
                             std::uint64_t iteration);

}  // namespace dflop
