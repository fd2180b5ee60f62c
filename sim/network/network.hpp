// Network: links, and which of them each transfer of a Program uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A transfer at rate r takes weight * r of the link's bandwidth.
struct LinkUse {
  std::int32_t link = 0;
  double weight = 1;
};

/// The links of a transfer: [begin, end) of Network::uses. No link twice.
struct Route {
  std::size_t begin = 0;
  std::size_t end = 0;
  double most_bytes_per_s = 0;  ///< its rate with nothing else on the links
};

/// A part of a transfer: nothing moves for `latency`, then `bytes` do.
struct TransferPhase {
  std::int32_t route = 0;
  Nanoseconds latency{0};
  double bytes = 0;
};

/// Plain tables. Transfers are the messages of a program and then its collectives; transfer t has the phases
/// [first_phase[t], first_phase[t + 1]), one after the other.
struct Network {
  std::vector<double> link_bytes_per_s;
  std::vector<LinkUse> uses;
  std::vector<Route> routes;
  std::vector<TransferPhase> phases;
  std::vector<std::size_t> first_phase;
};

/// All messages of a program on one link, as a bus; collectives take no time. Each message begins to move
/// after `latency` and goes at most at message_bytes_per_s times the lower `bandwidth_factor` of its ends
/// (empty: 1).
/// @pre bandwidths and factors > 0
Network shared_link(const Program& program, Nanoseconds latency, double bytes_per_s,
                    double message_bytes_per_s, const std::vector<double>& bandwidth_factor = {});

}  // namespace dflop
