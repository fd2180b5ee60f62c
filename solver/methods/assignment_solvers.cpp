#include "solver/methods/assignment_solvers.hpp"

#include <string>

#include "core/error.hpp"
#include "solver/methods/bin_solvers.hpp"
#include "solver/methods/makespan_solver.hpp"

namespace dflop {

std::unique_ptr<AssignmentSolver> make_assignment_solver(std::string_view name) {
  if (auto solver = make_bin_solver(name)) return solver;
  if (auto solver = make_makespan_solver(name)) return solver;
  std::string known;
  for (const std::string_view other : assignment_solver_names())
    known += (known.empty() ? "" : ", ") + std::string(other);
  throw Error(ErrorKind::usage, "unknown method '" + std::string(name) + "', expected one of " + known);
}

std::vector<std::string_view> assignment_solver_names() {
  std::vector<std::string_view> names = bin_solver_names();
  for (const std::string_view name : makespan_solver_names()) names.push_back(name);
  return names;
}

}  // namespace dflop
