// These functions read the options of the microbatch scheduler and of GPU memory.
#pragma once

#include <optional>

#include "core/plan.hpp"
#include "core/scheduler.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/scheduling.hpp"

namespace dflop {

/// Reads --objective; nullopt if it was not given. @throws Error (usage) for an unknown name.
std::optional<Objective> read_objective(const Values& values);
/// Reads --bin-order; nullopt if it was not given. @throws Error (usage) for an unknown name.
std::optional<BinOrder> read_bin_order(const Values& values);
/// Reads --respect-memory and --no-respect-memory; nullopt if neither was given. @throws Error (usage) if
/// both were given
std::optional<bool> read_respect_memory(const Values& values);
/// Reads the options of add_scheduler_options(). A command must declare --scheduler and may lack the others.
/// If the user gave --scheduler-command, registers the command as a method (use_scheduler_command()).
/// @throws Error (usage) for a wrong value, or options that cannot be combined, such as --time-limit and
/// --steps.
SchedulerChoice read_scheduler(const Values& values);
/// Chooses the scheduler `auto` if no option chooses one and the objective is the makespan. The objective
/// comes from --objective or else from the plan.
void choose_for_objective(SchedulerChoice& choice, const Values& values, const Plan& plan);

}  // namespace dflop
