// A gradient reduction goes over the links in phases: what each participant's ports carry, phase by phase.
#pragma once

#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A phase is the bytes that each rank of each participant sends and as many that it receives, at the same
/// time over both kinds of links.
struct CollectivePhase {
  Seconds latency{0};        ///< of all steps together
  double node_bytes = 0;     ///< over links inside a node
  double network_bytes = 0;  ///< over links between nodes

  bool operator==(const CollectivePhase&) const = default;
};

/// Returns the phases of an all-reduce of B bytes over n participants on k nodes with g on the fullest and e
/// on the emptiest. Ranks with the same tp index form one, all of them at once. One node: a ring, whatever
/// the algorithm.
///   ring          2 (n - 1) steps over all ranks, in as many rings as a node has participants, each of which
///                 leaves the node by another card (Thakur et al. 2005; NCCL): 2 (n - 1) / n B inside the
///                 node, 1 / e of that between nodes
///   tree          reduction and broadcast in a chain inside each node and, between nodes, in two
///                 binary trees that each carry half (Sanders et al. 2009; NCCL): 2 B inside a node,
///                 2 B / e between nodes, 2 (g - 1) steps inside and 2 ceil(log2 k) between
///   hierarchical  reduce-scatter inside each node, ring all-reduce of each participant's share B / e
///                 over the nodes, all-gather inside each node
///   fastest       that of these which takes least
/// Fewer than two participants: no phases.
std::vector<CollectivePhase> all_reduce_phases(const ClusterSpec& cluster, const Collective& collective,
                                               const Program& program);

/// Returns the bandwidth between nodes of each rank of a participant in a collective, the others of its node
/// being at work too.
double network_bandwidth(const ClusterSpec& cluster, const Collective& collective, const Program& program);

/// Returns the time of a phase with nothing else on the links.
Seconds phase_time(const ClusterSpec& cluster, const CollectivePhase& phase, double network_bandwidth);

}  // namespace dflop
