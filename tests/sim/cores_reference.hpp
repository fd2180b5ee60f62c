// What the engine must do where cores are few, worked out another way: time goes from one instant to the
// next, and at each everything is looked at until nothing changes.
#pragma once

#include <vector>

#include "tests/sim/pipelines.hpp"

namespace dflop::testing {

struct CoresReference {
  Nanoseconds makespan{0};
  std::vector<Nanoseconds> start;  ///< per instruction; of compute when it had its cores
  std::vector<Nanoseconds> end;    ///< per instruction
};

/// `cores` at least 1.
CoresReference make_cores_reference(const PricedProgram& priced, int cores);

}  // namespace dflop::testing
