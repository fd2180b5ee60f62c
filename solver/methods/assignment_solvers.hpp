// The assignment solvers by name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "solver/assignment_solver.hpp"

namespace dflop {

/// Those of solver/methods/bin_solvers.hpp and solver/methods/makespan_solver.hpp.
/// @throws Error (usage) for another name.
std::unique_ptr<AssignmentSolver> make_assignment_solver(std::string_view name);

/// In the order in which they are to be listed.
std::vector<std::string_view> assignment_solver_names();

}  // namespace dflop
