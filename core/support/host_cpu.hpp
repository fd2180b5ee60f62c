// host_cpu() names the processor of this machine.
#pragma once

#include <string>

namespace dflop {

/// Returns the processor's model name; "unknown" if the system does not report it.
std::string host_cpu();

}  // namespace dflop
