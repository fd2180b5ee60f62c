// The schedulers by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/scheduler.hpp"

namespace dflop {

struct SchedulerOptions {
  /// Branch-and-bound nodes of one call of "ilp" without a time limit.
  std::int64_t node_budget = 200;
  /// Steps of one call of the other searches without a time limit; 0: what they think fit.
  std::int64_t steps = 0;
  /// Whether the makespan's linear program is solved for the bound; else it is the simple one. With a time
  /// limit that is done once for a plan, after the search of its first batch and beyond the limit: a training
  /// loop that needs no proof leaves it out.
  bool prove = true;
};

/// The assignment solvers (solver/methods/assignment_solvers.hpp) on the samples of a batch, which cost what
/// costmodel/sample_costs.hpp says. An iteration is a stream of the seed of its own. Without an objective the
/// methods of the published system and the data-blind ones take the published form, "local-search" bins,
/// "makespan" and "auto" the makespan (solver/plan_problem/makespan.hpp). All are safe to call from several
/// threads at once.
/// @throws Error (usage) for another name.
std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options = {});

/// In the order in which they are to be listed.
std::vector<std::string_view> scheduler_names();

/// @throws Error (input) if `samples` cannot put one into each bin of the plan.
void require_enough_samples(std::size_t samples, const Plan& plan);

}  // namespace dflop
