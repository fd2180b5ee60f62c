// These functions declare and read the conditions of simulated runs. conditions.cpp has a row for each
// condition.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/timeline.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/what_if/what_if.hpp"

namespace dflop {

/// Adds the program conditions, from --network to --jitter, and --repeat and --seed.
void add_what_if_options(Options& options);

/// Adds the cluster conditions for plans: --collectives, --leaf and the bandwidths of links.
void add_cluster_what_if_options(Options& options);

/// Adds only the bandwidths of links, for commands that plan or schedule.
void add_link_options(Options& options);

/// Returns the change that the link options make to a cluster. @throws Error (usage) for a wrong value of an
/// option
std::function<void(ClusterSpec&)> read_link_changes(const Values& values);

/// The reason for rejecting link options with '--profile', which has measured links.
inline constexpr const char* kMeasuredLinks =
    "changes the cluster's links, but '--profile' has measured times instead";

/// Returns the names of the link options, for commands that reject them.
std::vector<const char*> link_option_names();

/// Returns the names of the link options and the other cluster conditions, for commands that reject them
/// because they have no cluster.
std::vector<const char*> cluster_condition_names();

/// Reads all conditions. If `with_roles` is false, rejects conditions that name a GPU's role (GpuRole).
/// @throws Error (usage) naming the option, the expected value and the found value.
WhatIf read_what_if(const Values& values, bool with_roles = true);

/// Returns the requested program conditions, such as "slow rank=3:1.5, jitter 0.1"; empty if there are none.
std::string conditions_name(const Values& values);

/// Prints a note to standard error if --fail was given. The caller has checked that all runs finished, so no
/// rank failed. Prints nothing with several repetitions (--repeat), whose report has the number of runs that
/// stalled.
void note_nothing_failed(const Values& values, std::span<const Timeline> timelines);

}  // namespace dflop
