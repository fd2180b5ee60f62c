// A Network has the links of a cluster, and the links that each transfer of a Program uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A LinkUse says how much of a link a transfer uses: at rate r it takes weight * r of the link's bandwidth.
struct LinkUse {
  std::int32_t link = 0;
  double weight = 1;
};

/// A Route has the links of a transfer: [begin, end) of Network::uses. No link appears twice.
struct Route {
  std::size_t begin = 0;
  std::size_t end = 0;
  double most_bytes_per_s = 0;  ///< max rate of a transfer, with nothing else on the links
};

/// A TransferPhase is a part of a transfer: nothing moves for `latency`, then `bytes` move.
struct TransferPhase {
  std::int32_t route = 0;
  Nanoseconds latency{0};
  double bytes = 0;
};

/// A Network consists of plain tables. The transfers are the messages of a program followed by its
/// collectives. Transfer t has the phases [first_phase[t], first_phase[t + 1]), one after the other.
struct Network {
  std::vector<double> link_bytes_per_s;
  std::vector<LinkUse> uses;
  std::vector<Route> routes;
  std::vector<TransferPhase> phases;
  std::vector<std::size_t> first_phase;
};

/// Returns the bandwidth factor of each GPU of a program with shared GPUs: the min over the groups on it.
/// @pre `factor` has an entry for each group
std::vector<double> gpu_factors(const Program& program, const std::vector<double>& factor);

/// Returns a network in which all messages of a program share one link, like a bus; collectives take no time.
/// Each message begins to move after `latency`, at a rate of at most message_bytes_per_s times the lower
/// `bandwidth_factor` of its two groups. If `bandwidth_factor` is empty, all factors are 1.
/// @pre bandwidths and factors > 0
Network shared_link(const Program& program, Nanoseconds latency, double bytes_per_s,
                    double message_bytes_per_s, const std::vector<double>& bandwidth_factor = {});

/// Returns the network of a program on a cluster. Every rank has, in each direction, a port to its node's
/// switch and a network card; ranks on the same GPU share them. The uplinks of a leaf switch have 1 /
/// oversubscription of the total bandwidth of its nodes' cards, and so have its downlinks.
///
/// A message begins to move after message_latency(). It is split over pairs of ranks, as many as its smaller
/// group has ranks. Each pair uses its own ports, or its own cards if the groups are on two nodes. A
/// collective has the phases of all_reduce_phases(), and its rings for all tp indices run together. A message
/// that stays on its GPUs takes message_time() and uses no link.
///
/// With nothing else on the links, a message or collective takes the time that
/// costmodel/analytic/communication.hpp computes. Messages of one reshard are the exception: there,
/// port_bytes estimate the contention, which this network simulates.
///
/// `bandwidth_factor` per group scales the bandwidth of its ports (below 1 for a degraded link); empty: 1
/// everywhere.
Network cluster_network(const Program& program, const ClusterSpec& cluster,
                        const std::vector<double>& bandwidth_factor = {});

}  // namespace dflop
