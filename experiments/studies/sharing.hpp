// Sharing says what modules that share GPUs do beside each other, and what they take from each other.
#pragma once

#include <string>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "experiments/cli/table.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// Returns a row for each module of a program on shared GPUs: its compute on the mean GPU, how much of that
/// runs while the other module computes there, and by how much it is longer than alone on its share. No rows
/// where GPUs are not shared. `timeline` is of a run of the program under these costs and conditions, with
/// spans.
Table explain_sharing(const Program& program, const ProgramCosts& costs, const Timeline& timeline,
                      const Conditions& conditions = {});

/// Returns the table with its heading, as text that follows another table; nothing without rows.
std::string sharing_text(const Table& sharing);

}  // namespace dflop
