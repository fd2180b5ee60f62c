// What the engine must compute, worked out another way: longest paths in the graph of dependencies, and every
// share of a group's time from its definition as an overlap of intervals.
#pragma once

#include <vector>

#include "core/timeline.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {

struct Reference {
  Nanoseconds makespan{0};
  std::vector<Nanoseconds> end;  ///< per instruction
  std::vector<Nanoseconds> collective_start;
  std::vector<GroupUsage> groups;
};

Reference make_reference(const PricedProgram& priced);

}  // namespace dflop::testing
