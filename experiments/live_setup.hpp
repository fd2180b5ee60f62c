// What live runs of a plan begin with.
#pragma once

#include <memory>
#include <string>

#include "backend/world.hpp"
#include "core/plan.hpp"
#include "experiments/options.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A world of backend/worlds.hpp. With the host's the process keeps from then on what memory it frees.
/// `cores`: on which ranks take turns to compute.
/// @throws as make_world()
std::unique_ptr<World> make_live_world(const std::string& device, int ranks, int cores);

/// --device and --dtype. `processes`: whether devices are offered whose ranks are processes.
void add_live_options(Options& options, bool processes);
/// A device that one process runs all ranks on, and that is there. @throws Error (usage), (no_device)
std::string read_local_device(const Values& values);
/// @throws Error (usage)
DType read_dtype(const Values& values);

/// --cores.
void add_cores_option(Options& options);
/// The machine's, where the user says nothing; 0: ranks take no turns.
int read_cores(const Values& values);

/// Any assignment: groups and stages of a plan's Programs are the same under all.
Assignment any_assignment(const Plan& plan);

}  // namespace dflop
