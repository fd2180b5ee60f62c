// This file measures messages and all-reduces between the ranks of this process.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backend/communicator.hpp"
#include "core/measured/profile.hpp"

namespace dflop {

/// A LinkEnd is what a rank needs to take part.
struct LinkEnd {
  Communicator& communicator;
  Device& device;
  DeviceStream& stream;
};

/// LinkLines say what messages and all-reduces take.
struct LinkLines {
  ProfileLine message;                    ///< per byte; zero with one rank
  std::map<int, ProfileLine> all_reduce;  ///< per byte, of the first 2, 4, ... ranks
};

/// Measures messages and all-reduces. `ends` has all ranks; each works in a thread of its own. `element` is
/// what is summed. Lines are fitted to medians of the time from when the last rank comes, for which the
/// others wait, until all are done: as in a run, where it was computing.
/// @throws what the first rank that failed has thrown
LinkLines measure_links(const std::vector<LinkEnd>& ends, Element element);

}  // namespace dflop
