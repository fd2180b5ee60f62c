// What every communicator checks of its callers.
#pragma once

#include <cstddef>
#include <string>

#include "backend/communicator.hpp"

namespace dflop {

/// @throws Error (internal) "rank 0 sends a letter to rank 7: ..." where the peer is this rank or no rank of
/// the run. `does`: "sends a letter to".
void require_peer(const Communicator& communicator, int peer, const std::string& does);

/// The place of the communicator's rank in the group.
/// @throws Error (internal) where it is not there, or a rank stands twice or is not of the run.
std::size_t place_in(const RankGroup& group, const Communicator& communicator, const std::string& what);

}  // namespace dflop
