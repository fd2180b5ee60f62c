// Routes say which ranks send messages to which.
#pragma once

#include <vector>

#include "backend/communicator.hpp"
#include "core/program.hpp"

namespace dflop {

/// Returns the places of a tp group of `receivers` to which rank `place` of one of `senders` sends: each of
/// them hears a message once, and all senders have it.
std::vector<int> receivers_of(int place, int senders, int receivers);

/// Returns the routes of all ranks of a Program, each once, by source and then destination.
std::vector<RankRoute> routes_of(const Program& program);

}  // namespace dflop
