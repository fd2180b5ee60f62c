// Messages and collectives take a time by latency and bandwidth: alpha + bytes / beta (Hockney 1994),
// uncontended. A gradient reduction goes over the links in phases: what each participant's ports carry, phase
// by phase.
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

/// Tells whether a collective's rings share node_ring_bandwidth_bytes_per_s out of a node.
bool shares_node_ring(const ClusterSpec& cluster, const Collective& collective, const Program& program);

/// Returns the bandwidth between nodes of each rank of a participant in a collective, the others of its node
/// being at work too.
double network_bandwidth(const ClusterSpec& cluster, const Collective& collective, const Program& program);

/// Returns the time of a phase with nothing else on the links.
Seconds phase_time(const ClusterSpec& cluster, const CollectivePhase& phase, double network_bandwidth);

/// Returns the time of a ring all-reduce of `bytes` on each of `ranks`: 2 (n - 1) steps of bytes / n (Thakur
/// et al. 2005; Patarasuk and Yuan 2009). An all-gather and a reduce-scatter, as under sequence parallelism,
/// together move the same. One rank: zero.
Seconds ring_all_reduce(const Link& link, int ranks, double bytes);

/// Returns the time of an all-reduce of one tensor over a tp group: a ring in its node; where tp is more than
/// a node's GPUs, rings in each node and between the nodes, a part of the tensor between each GPU and its
/// likes. NCCL sends in chunks, the rings work at the same time on different ones, and the slower link
/// decides.
Seconds tensor_all_reduce_time(const ClusterSpec& cluster, int tp, double bytes);

/// Tells whether all ranks of both groups of a message are on one node.
bool inside_node(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns what each link that a message uses carries of its exchange: port_bytes, split as message_time()
/// says; all of them through the one link of a hub.
double bytes_on_link(const Message& message, const Program& program);

/// Returns the time in which the ranks of a message that stays on its GPUs copy their parts.
Seconds copy_time(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns what a message takes beside its bytes on the link: the link's latency, the cluster's
/// message_overhead and, without sequence parallelism, where every rank needs a whole copy, the all-gather
/// inside the node that makes it of the parts (Narayanan et al. 2021, section 4.1: scatter/gather). A hub
/// sends whole copies, and nothing is gathered. The link is that inside a node if all ranks of both groups
/// are on one, else that between nodes. A message that stays on its GPUs has no link.
Seconds message_latency(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns the time from send to arrival. The message is split over min(source ranks, destination ranks)
/// pairs of ranks, but for those of a hub, whose one rank sends and receives all (hub_copies()). The link
/// carries port_bytes, not bytes: what the busier end moves in the same exchange shares that end's NIC, so
/// several messages of one reshard do not each get all of it. A message that stays on its GPUs is a copy
/// there: each rank reads its part and writes it.
Seconds message_time(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns the time of a gradient reduction: the sum over all_reduce_phases().
///
/// Where the cluster says so (node_ring_bandwidth_bytes_per_s), groups with several ranks in a node do not
/// get a card for each: the rings of all tp indices share that bandwidth. So it was measured on A100 nodes of
/// 2022; see docs/calibration.md.
///
/// Under ZeRO-1 the reduction is a reduce-scatter of fp32 gradients and, after the optimizer step, an
/// all-gather of bf16 parameters (Rajbhandari et al. 2020). Both are charged here, as the all-reduce, which
/// is an upper bound: 8 bytes a parameter instead of 6.
Seconds all_reduce_time(const ClusterSpec& cluster, const Collective& collective, const Program& program);

/// ReductionTimes say what a gradient reduction waits for, phase by phase for the slower of its two kinds of
/// links; together they are all_reduce_time().
struct ReductionTimes {
  Seconds latency{0};
  Seconds intra_node{0};  ///< bytes on links inside a node
  Seconds inter_node{0};  ///< bytes at the bandwidth of inter_node
  Seconds node_ring{0};   ///< bytes at a share of node_ring_bandwidth_bytes_per_s

  Seconds sum() const { return latency + intra_node + inter_node + node_ring; }
};

ReductionTimes reduction_times(const ClusterSpec& cluster, const Collective& collective,
                               const Program& program);

}  // namespace dflop
