// A Network says which links there are, and which of them each transfer of a Program uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A LinkUse says that a transfer at rate r takes weight * r of the link's bandwidth.
struct LinkUse {
  std::int32_t link = 0;
  double weight = 1;
};

/// A Route is the links of a transfer: [begin, end) of Network::uses. No link twice.
struct Route {
  std::size_t begin = 0;
  std::size_t end = 0;
  double most_bytes_per_s = 0;  ///< its rate with nothing else on the links
};

/// A TransferPhase is a part of a transfer: nothing moves for `latency`, then `bytes` do.
struct TransferPhase {
  std::int32_t route = 0;
  Nanoseconds latency{0};
  double bytes = 0;
};

/// A Network is plain tables. Transfers are the messages of a program and then its collectives; transfer t
/// has the phases [first_phase[t], first_phase[t + 1]), one after the other.
struct Network {
  std::vector<double> link_bytes_per_s;
  std::vector<LinkUse> uses;
  std::vector<Route> routes;
  std::vector<TransferPhase> phases;
  std::vector<std::size_t> first_phase;
};

/// Returns the bandwidth factor of each GPU of a program with shared ones: the least of the groups on it.
/// @pre a factor for each group
std::vector<double> gpu_factors(const Program& program, const std::vector<double>& factor);

/// Returns a network that has all messages of a program on one link, as a bus; collectives take no time. Each
/// message begins to move after `latency` and goes at most at message_bytes_per_s times the lower
/// `bandwidth_factor` of its ends (empty: 1).
/// @pre bandwidths and factors > 0
Network shared_link(const Program& program, Nanoseconds latency, double bytes_per_s,
                    double message_bytes_per_s, const std::vector<double>& bandwidth_factor = {});

/// Returns the links of one cluster: every group has, for each of its ranks, a port to the switch of its node
/// and a network card, each way, which groups on shared GPUs have together; every leaf switch has links up
/// and down, over which its nodes' cards together get 1 / oversubscription of their bandwidth.
///
/// A message begins to move after message_latency(). It is split over as many pairs of ranks as the smaller
/// end has, each pair with a port of its own, and uses the cards if its ends are on two nodes. A collective
/// has the phases of all_reduce_phases(), and those of all tp indices go together. A message that stays on
/// its GPUs takes message_time() and no link.
///
/// With nothing else on the links, a message or collective takes as long as
/// costmodel/analytic/communication.hpp says, but for messages of one reshard, whose port_bytes stand for the
/// contention that is simulated here.
///
/// `bandwidth_factor` per group scales its ports (a degraded link is below 1); empty: 1 everywhere.
Network cluster_network(const Program& program, const ClusterSpec& cluster,
                        const std::vector<double>& bandwidth_factor = {});

}  // namespace dflop
