// This file explains how modules that share GPUs overlap and slow each other down.
#pragma once

#include <string>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"
#include "experiments/cli/table.hpp"
#include "sim/conditions.hpp"

namespace dflop {

/// Returns a row for each module of a program on shared GPUs. It has the module's compute time on an average
/// GPU, the part of it that overlaps with the other module's compute, and how much longer it is than if the
/// module ran by itself on its share of the GPU. There are no rows if GPUs are not shared. `timeline` must be
/// a run of the program with these costs and conditions, with spans.
Table explain_sharing(const Program& program, const ProgramCosts& costs, const Timeline& timeline,
                      const Conditions& conditions = {});

/// Returns the table of explain_sharing() with a heading, as text that follows another table; empty if it has
/// no rows.
std::string sharing_text(const Table& sharing);

}  // namespace dflop
