// These functions declare and read --overhead.
#pragma once

#include <vector>

#include "experiments/cli/option_values.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/trust/overhead.hpp"

namespace dflop {

/// Adds --overhead.
void add_overhead_option(Options& options);

/// Reads --overhead: one number, such as 0.05, or named parts. The part "allowance" stands for the value in
/// the cluster's notes.
/// @throws Error (usage) for an unknown or repeated name, and for "allowance" if the notes have no allowance
Overhead read_overhead(const Values& values, const std::vector<NamedNotes>& notes);

}  // namespace dflop
