// These functions make the provenance of the files that a command writes, from its options, and compare files
// unless --mixed is given.
#pragma once

#include <optional>
#include <string>

#include "experiments/cli/option_values.hpp"
#include "experiments/studies/plan_files.hpp"
#include "experiments/studies/target.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// Returns the version of this program, its commit, the command, the machine, and --gbs and --seed if
/// `values` have them.
Provenance made_here(const Values& values);

/// Returns made_here() for a result about a model on a cluster.
Provenance made_here(const Values& values, const Target& target);

/// Returns the same for a result that also depends on data.
Provenance made_here(const Values& values, const Target& target, const DataOrigin& data);

/// Returns the same for a result made from a plan and its schedule, with their data and batches.
Provenance made_here(const Values& values, const PlanFiles& files);

/// Adds --mixed.
void add_mixed_option(Options& options);

/// Checks that two files belong together.
/// @throws Error (input) naming both if they were made with different models, clusters or data, unless
/// --mixed allows this. In that case, prints a note to standard error.
void require_together(const Values& values, const std::string& file, const std::optional<Provenance>& made_by,
                      const std::string& other, const std::optional<Provenance>& others);

}  // namespace dflop
