// Where the search for the smallest makespan starts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/support/random.hpp"
#include "solver/assignment_solver.hpp"
#include "solver/makespan/search.hpp"

namespace dflop {

/// An assignment found on one replica that stands for all: like items are put together, as many as there are
/// replicas or a multiple, and what they are on average is scheduled as one item; then each replica gets its
/// part of them. Replicas so become alike, and the search is as much smaller as there are items in a cell.
/// @return the bin of each item; empty where the parts do not obey the caps or leave a bin empty
std::vector<std::int32_t> mean_replica_start(const AssignmentProblem& problem, Random& random,
                                             const SearchControl& control);

}  // namespace dflop
