// These functions declare and read the options of explanations: --explain and --html.
#pragma once

#include <optional>

#include "experiments/cli/option_values.hpp"
#include "experiments/studies/explain.hpp"

namespace dflop {

/// Adds --explain and --html.
void add_explain_options(Options& options);

/// Rejects --explain with a format that can hold only one table.
/// @throws Error (usage)
void require_room_for_explanation(const Values& values, Format format);

/// Returns whether --explain or --html was given.
bool wants_explanation(const Values& values);

/// Returns `explanation`, which is then not empty, if --explain was given; else null.
const Explanation* printed(const Values& values, const std::optional<Explanation>& explanation);

}  // namespace dflop
