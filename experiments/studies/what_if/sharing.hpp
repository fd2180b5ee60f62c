// This file explains how modules that share GPUs overlap and slow each other down.
#pragma once

#include <string>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "experiments/cli/table.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// Returns a row for each module of a program on shared GPUs: its compute time on an average GPU, how much of
/// it overlaps with the other module's compute, and how much longer it is than if the module ran by itself on
/// its share. There are no rows if GPUs are not shared. `timeline` is a run of the program with these costs
/// and conditions, including spans.
Table explain_sharing(const Program& program, const ProgramCosts& costs, const Timeline& timeline,
                      const Conditions& conditions = {});

/// Returns the table with its heading, as text that follows another table; empty without rows.
std::string sharing_text(const Table& sharing);

}  // namespace dflop
