#include "solver/assignment_solver.hpp"

namespace dflop {

double AssignmentProblem::objective(std::span<const std::int32_t> bin) const {
  return pipeline == nullptr ? largest_load(bins, bin)
                             : makespan(*pipeline, load_table(*pipeline, features, bin));
}

}  // namespace dflop
