// The assignment solvers that balance bins.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "solver/assignment_solver.hpp"

namespace dflop {

/// "random" and "sequential" cut the items, shuffled or as they come, into bins of equal counts
/// (solver/bins/in_order.hpp); "lpt" (solver/bins/lpt.hpp); "karmarkar-karp", on the LLM time alone
/// (solver/bins/karmarkar_karp.hpp); "local-search" (solver/bins/local_search.hpp); "ilp"
/// (solver/bins/ilp.hpp). Where a method does not find an assignment that obeys the caps, one is searched for
/// and reported as fallback.
///
/// For the makespan of a pipeline they balance bins all the same, put the bins in order (all but "random" and
/// "sequential": solver/bins/order.hpp) and report the makespan of what came out. `improved` is then called
/// once, with the result.
/// @return nothing for another name.
std::unique_ptr<AssignmentSolver> make_bin_solver(std::string_view name);

/// In the order in which they are to be listed.
std::vector<std::string_view> bin_solver_names();

}  // namespace dflop
