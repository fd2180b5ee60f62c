// These functions read the options of the microbatch scheduler and of GPU memory.
#pragma once

#include <optional>

#include "core/plan.hpp"
#include "core/scheduler.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/scheduling.hpp"

namespace dflop {

/// Reads --objective; nothing if it was not given. @throws Error (usage) for an unknown name.
std::optional<Objective> read_objective(const Values& values);
/// Reads --bin-order; nothing if it was not given. @throws Error (usage) for an unknown name.
std::optional<BinOrder> read_bin_order(const Values& values);
/// Reads --respect-memory and --no-respect-memory; nothing if neither was given. @throws Error (usage) for
/// both
std::optional<bool> read_respect_memory(const Values& values);
/// Reads the options of add_scheduler_options(), of which all but `scheduler` may be undeclared. If the
/// user's scheduler command is declared, reads it too and makes it a method (use_scheduler_command()).
/// @throws Error (usage) for an unknown name or several limits.
SchedulerChoice read_scheduler(const Values& values);
/// If the options do not choose a scheduler and the goal is a short makespan, by --objective or else by the
/// plan, chooses `auto`.
void choose_for_objective(SchedulerChoice& choice, const Values& values, const Plan& plan);

}  // namespace dflop
