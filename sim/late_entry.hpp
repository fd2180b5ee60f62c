// When an all_reduce_start comes into force.
#pragma once

#include <cmath>

#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// How long the compute after an all_reduce_start runs before its group enters `collective`. Zero: the group
/// enters at once.
inline Nanoseconds entry_delay(const Collective& collective, Nanoseconds compute) {
  return Nanoseconds(std::llround(collective.ready * static_cast<double>(compute.count())));
}

}  // namespace dflop
