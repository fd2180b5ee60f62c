// These functions make the provenance of the files that a command writes, and check that its input files
// belong together.
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

/// Returns made_here(values) with the model, the cluster, the profile and the kernels of `target`.
Provenance made_here(const Values& values, const Target& target);

/// Returns made_here(values, target) with the data that the result depends on.
Provenance made_here(const Values& values, const Target& target, const DataOrigin& data);

/// Returns made_here() for a result made from a plan and its schedule. Takes the data, gbs and seed from the
/// schedule.
Provenance made_here(const Values& values, const PlanFiles& files);

/// Adds --mixed.
void add_mixed_option(Options& options);

/// Checks that two files belong together.
/// @throws Error (input) naming both files if they were made with different models, clusters or data. If
/// --mixed was given, prints a note to standard error instead.
void require_together(const Values& values, const std::string& file, const std::optional<Provenance>& made_by,
                      const std::string& other, const std::optional<Provenance>& others);

}  // namespace dflop
