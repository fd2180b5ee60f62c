// The host's World: every rank is a thread of this process.
#pragma once

#include <memory>
#include <optional>

#include "backend/world.hpp"
#include "core/units.hpp"

namespace dflop {

struct HostRanksOptions {
  Seconds timeout{60};          ///< that a rank waits for another
  std::optional<Bytes> memory;  ///< of each rank; none: what the machine gives
};

std::unique_ptr<World> make_host_ranks(int ranks, const HostRanksOptions& options = {});

}  // namespace dflop
