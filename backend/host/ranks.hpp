// The host's World: every rank is a thread of this process.
#pragma once

#include <memory>
#include <optional>

#include "backend/world.hpp"
#include "core/units.hpp"

namespace dflop {

struct HostRanksOptions {
  Seconds timeout{60};          ///< that a rank waits for another
  std::optional<Bytes> memory;  ///< of each rank; none: what the machine has
  int cores = 0;                ///< that compute at a time; 0: every rank when it likes
};

/// @throws Error (internal) for a number of ranks, cores or a timeout that cannot be.
std::unique_ptr<World> make_host_ranks(int ranks, const HostRanksOptions& options = {});

}  // namespace dflop
