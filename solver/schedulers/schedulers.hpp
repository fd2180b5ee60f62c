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
  /// If true, the bound on a makespan comes from a linear program, otherwise from simple arguments. With a
  /// time limit, the linear program is solved once per plan, after the search for the plan's first batch, and
  /// its time does not count toward the limit. A training loop that needs no proof can turn it off.
  bool prove = true;
};

/// Makes the scheduler that runs a method (solver/schedulers/methods.hpp) on the samples of a batch, with the
/// costs of costmodel/sample_costs.hpp. Each iteration has its own stream of the random seed. For the
/// makespan see solver/plan_problem/makespan.hpp. Several threads may call the scheduler at once.
///
/// The scheduler minimizes the objective in the request's limits. If there is none, it minimizes the plan's
/// objective, unless the method keeps its own; if there is none either, the method's default.
///
/// If the limits have a memory, no result needs more than this on any rank (memory_peak()), in the order of
/// steps that the request's cost model and this memory determine. If an assignment needs more, the scheduler
/// makes it again under lower caps, or replaces it by LPT's assignment with status fallback. If neither fits,
/// the result is infeasible.
/// @throws Error (usage) for a name that no method has.
std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options = {});

/// Returns the name of the scheduler to run instead of `name` when only memory matters. For schedulers that
/// look at costs it is LPT, because within memory they fall back on LPT; for all others it is `name`.
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
