// The assignment solver "makespan", and "auto", which takes the method that fits.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "solver/assignment_solver.hpp"

namespace dflop {

/// "makespan": LPT, then the search for the smallest makespan of the problem's pipeline
/// (solver/makespan_search.hpp), half of it on one replica that stands for all (solver/makespan_start.hpp).
///
/// "auto": has the result of LPT ready at once and improves it until the budget ends. For the makespan of a
/// pipeline it balances bins by local search, which takes a few milliseconds at most, and goes on as
/// "makespan" from the better of the two. For the largest load of bins it is the local search, and on small
/// problems without a time limit the integer program.
///
/// Both obey caps; where neither LPT nor a search for caps finds an assignment, they are infeasible. Without
/// a pipeline "makespan" is "local-search". The bound is that of problem.bounds where there is one. Without
/// limits they do some 16,000 steps, of 16 candidates each: the same result whatever the machine.
/// @return nothing for another name.
std::unique_ptr<AssignmentSolver> make_makespan_solver(std::string_view name);

/// In the order in which they are to be listed.
std::vector<std::string_view> makespan_solver_names();

}  // namespace dflop
