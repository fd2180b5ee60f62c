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
};

/// "random" is data-blind (solver/random_scheduler.hpp), "lpt" the two-dimensional heuristic
/// (solver/lpt.hpp), "ilp" the integer program (solver/ilp.hpp). Samples cost what costmodel/sample_costs.hpp
/// says. All are safe to call from several threads at once.
/// @throws Error (usage) for another name.
std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options = {});

/// In the order in which they are to be listed.
std::vector<std::string_view> scheduler_names();

/// @throws Error (input) if `samples` cannot put one into each bin of the plan.
void require_enough_samples(std::size_t samples, const Plan& plan);

}  // namespace dflop
