// The clock of everything that runs on the host.
#pragma once

#include "core/units.hpp"

namespace dflop {

/// Time since the process first asked for it. All threads see the same clock, and it does not go back.
Nanoseconds host_time();

}  // namespace dflop
