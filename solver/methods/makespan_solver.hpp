// The assignment solver "makespan", and "auto", which takes the method that fits.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "solver/assignment_solver.hpp"

namespace dflop {

/// "makespan": LPT, then the search for the smallest makespan of the problem's pipeline
/// (solver/makespan/search.hpp), half of it on one replica that stands for all (solver/makespan/start.hpp).
///
/// "auto": "makespan" where there is a pipeline; it has the result of LPT at once, and to balance the bins
/// better first does not pay. For the largest load of bins it is the local search, or the integer program
/// where the problem is small and no time limit given, with that one's own number of nodes.
///
/// Both obey caps; where neither LPT nor a search for caps finds an assignment, they are infeasible. Without
/// a pipeline "makespan" is "local-search". The bound is that of problem.bounds where there is one. Without
/// limits they do 4,096 steps, of 16 candidates each: the same result whatever the machine.
/// @return nothing for another name.
std::unique_ptr<AssignmentSolver> make_makespan_solver(std::string_view name);

/// In the order in which they are to be listed.
std::vector<std::string_view> makespan_solver_names();

}  // namespace dflop
