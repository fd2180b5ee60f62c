// The network of a Program on a cluster.
#pragma once

#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "sim/network/network.hpp"

namespace dflop {

/// Links of one cluster: every group has, for each of its ranks, a port to the switch of its node and a
/// network card, each way; every leaf switch has links up and down, over which its nodes' cards together get
/// 1 / oversubscription of their bandwidth.
///
/// A message begins to move after message_latency(). It is split over as many pairs of ranks as the smaller
/// end has, each pair with a port of its own, and uses the cards if its ends are on two nodes. A collective
/// has the phases of all_reduce_phases(), and those of all tp indices go together.
///
/// With nothing else on the links, a message or collective takes as long as
/// costmodel/analytic/communication.hpp says, but for messages of one reshard, whose port_bytes stand for the
/// contention that is simulated here.
///
/// `bandwidth_factor` per group scales its ports (a degraded link is below 1); empty: 1 everywhere.
Network cluster_network(const Program& program, const ClusterSpec& cluster,
                        const std::vector<double>& bandwidth_factor = {});

}  // namespace dflop
