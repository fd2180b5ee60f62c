// References compute what the engine must compute, in another way.
#pragma once

#include <vector>

#include "core/timeline.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {

/// A Reference uses the longest paths in the graph of dependencies, and computes every share of a group's
/// time by its definition as an overlap of intervals.
struct Reference {
  Nanoseconds makespan{0};
  std::vector<Nanoseconds> end;  ///< per instruction
  std::vector<Nanoseconds> collective_start;
  std::vector<GroupUsage> groups;
};

Reference make_reference(const PricedProgram& priced);

/// A CoresReference is for runs with few cores: time advances from one instant to the next, and at each
/// instant all groups are checked until nothing changes.
struct CoresReference {
  Nanoseconds makespan{0};
  std::vector<Nanoseconds> start;  ///< per instruction; of compute when it had its cores
  std::vector<Nanoseconds> end;    ///< per instruction
};

/// @pre cores >= 1
CoresReference make_cores_reference(const PricedProgram& priced, int cores);

}  // namespace dflop::testing
