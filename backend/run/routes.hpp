// Which ranks send messages to which.
#pragma once

#include <vector>

#include "backend/communicator.hpp"
#include "core/program.hpp"

namespace dflop {

/// Rank `place` of a tp group of `senders` sends to these places of one of `receivers`: each of them hears a
/// message once, and all senders have it.
std::vector<int> receivers_of(int place, int senders, int receivers);

/// Of all ranks of a Program, each once, by source and then destination.
std::vector<RankRoute> routes_of(const Program& program);

}  // namespace dflop
