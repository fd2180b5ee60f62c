// Schedulers are made by name.
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

/// SchedulerOptions are what stays the same for all requests.
struct SchedulerOptions {
  /// The makespan's linear program is solved for the bound; else that is the simple one. With a time limit
  /// that is done once for a plan, after the search of its first batch and beyond the limit: a training loop
  /// that needs no proof leaves it out.
  bool prove = true;
};

/// Makes the scheduler that runs a method (solver/schedulers/methods.hpp) on the samples of a batch, which
/// cost what costmodel/sample_costs.hpp says. An iteration is a stream of the seed of its own. For the
/// makespan see solver/plan_problem/makespan.hpp. It is safe to call from several threads at once.
///
/// It makes small what the request's limits say, else what the plan was made for, unless the method keeps its
/// own, else what is the method's own. Where the limits have a memory, no result needs more on any rank, in
/// the order that the request's cost model and that memory make (memory_peak()): an assignment that does is
/// made again under lower caps, that of LPT is taken with status fallback, or the result is infeasible.
/// @throws Error (usage) for a name that no method has.
std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options = {});

/// Returns the name of the scheduler that stands for another where only memory is asked for: LPT for those
/// that look at costs, as within memory they fall back on it; others stand for themselves.
/// @throws Error (usage) for a name that no method has.
std::string_view filler_for(std::string_view name);

/// Returns the names of all methods in the order in which they are to be listed, or of those whose work is
/// counted so.
std::vector<std::string_view> scheduler_names(std::optional<Budget> budget = {});

/// Checks the number of samples. @throws Error (input) if it cannot put one into each bin of the plan.
void require_enough_samples(std::size_t samples, const Plan& plan);

/// Makes the assignment of common training loops, which look at no cost: shuffles the samples by (seed,
/// iteration) and cuts them into consecutive bins whose counts differ by at most one, the larger ones first.
/// It is what the scheduler "random" makes without caps.
/// @throws Error (input) if there are fewer samples than bins.
Assignment random_assignment(std::size_t samples, const Plan& plan, std::uint64_t seed,
                             std::uint64_t iteration);

}  // namespace dflop
