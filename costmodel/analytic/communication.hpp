// This file prices messages and collectives by latency and bandwidth: alpha + bytes / beta (Hockney 1994),
// without contention. A gradient reduction consists of phases; each phase counts the bytes that a
// participant's ports carry.
#pragma once

#include <vector>

#include "core/cluster.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A CollectivePhase holds the bytes that each rank of each participant sends over each kind of link; it
/// receives as many. Both kinds of links work at the same time.
struct CollectivePhase {
  Seconds latency{0};        ///< sum over all steps
  double node_bytes = 0;     ///< over links inside a node
  double network_bytes = 0;  ///< over links between nodes

  bool operator==(const CollectivePhase&) const = default;
};

/// Returns the phases of an all-reduce of B bytes over n participants on k nodes, with g participants on the
/// fullest node and e on the emptiest. The ranks of each tp index form one all-reduce; all of these run at
/// once. A group with several copies of a stage is as many participants. On one node every algorithm is a
/// ring.
///   ring          2 (n - 1) steps over all ranks, in as many rings as a node has participants, each of which
///                 leaves the node through its own network card (Thakur et al. 2005; NCCL): 2 (n - 1) / n B
///                 inside the node, 1 / e of it between nodes
///   tree          reduction and broadcast in a chain inside each node and, between nodes, in two
///                 binary trees that each carry half (Sanders et al. 2009; NCCL): 2 B inside a node,
///                 2 B / e between nodes, 2 (g - 1) steps inside and 2 ceil(log2 k) between
///   hierarchical  reduce-scatter inside each node, ring all-reduce of each participant's share B / e
///                 over the nodes, all-gather inside each node
///   fastest       the fastest of these three
/// Fewer than two participants have no phases.
std::vector<CollectivePhase> all_reduce_phases(const ClusterSpec& cluster, const Collective& collective,
                                               const Program& program);

/// Returns whether a collective's rings share the node's node_ring_bandwidth_bytes_per_s.
bool shares_node_ring(const ClusterSpec& cluster, const Collective& collective, const Program& program);

/// Returns the bandwidth between nodes that each rank of a participant gets in a collective while the node's
/// other participants also send.
double network_bandwidth(const ClusterSpec& cluster, const Collective& collective, const Program& program);

/// Returns the time of a phase if nothing else uses the links.
Seconds phase_time(const ClusterSpec& cluster, const CollectivePhase& phase, double network_bandwidth);

/// Returns the time of an all-reduce of one tensor over a tp group. Inside one node it is a ring. If tp
/// exceeds the GPUs of a node, there are rings inside each node and rings between nodes, each over GPUs at
/// the same position in their nodes, which carry a part of the tensor. NCCL sends in chunks and the rings
/// work on different chunks at the same time, so the slower link decides.
Seconds tensor_all_reduce_time(const ClusterSpec& cluster, int tp, double bytes);

/// Returns the time in which the copies of a stage in one tp group (Stage::copies) gather what each of them
/// has made, `bytes` at most, on all ranks of the group: an all-gather by rings inside the node, one for each
/// tp index.
Seconds copies_gather_time(const ClusterSpec& cluster, int copies, double bytes);

/// Returns whether all ranks of both groups of a message are on one node.
bool inside_node(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns the bytes that each link used by a message carries: the exchange's port_bytes, split as in
/// message_time(). A hub has one link, which carries all of them.
double bytes_on_link(const Message& message, const Program& program);

/// Returns the time in which the ranks copy their parts of a message that stays on its GPUs.
Seconds copy_time(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns the part of a message's time that does not depend on its link's bandwidth: the link's latency and
/// the cluster's message_overhead. Without sequence parallelism every rank needs a whole copy, so this
/// includes the all-gather inside the node that assembles the copy from the parts (Narayanan et al. 2021,
/// section 4.1: scatter/gather). A hub sends whole copies, so it needs no all-gather. The link is the node's
/// if all ranks of both groups are on one node, else the network's. A message that stays on its GPUs has no
/// link.
Seconds message_latency(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns the time from send to arrival. The message is split over min(source ranks, destination ranks)
/// pairs of ranks, except at a hub, whose one rank sends and receives everything (hub_copies()). The link
/// carries port_bytes, not bytes: all transfers of the busier end in the same exchange share its NIC, so the
/// messages of one reshard do not each get the full bandwidth. A message that stays on its GPUs is a local
/// copy: each rank reads its part and writes it.
Seconds message_time(const ClusterSpec& cluster, const Message& message, const Program& program);

/// Returns the time of a gradient reduction: the sum over all_reduce_phases().
///
/// If the cluster sets node_ring_bandwidth_bytes_per_s, groups with several ranks in a node do not get a
/// network card each: the rings of all tp indices share that bandwidth. This was measured on A100 nodes of
/// 2022; see docs/calibration.md.
///
/// Under ZeRO-1 the reduction is a reduce-scatter of fp32 gradients and, after the optimizer step, an
/// all-gather of bf16 parameters (Rajbhandari et al. 2020). This function charges both as one all-reduce,
/// which is an upper bound: 8 bytes a parameter instead of 6.
Seconds all_reduce_time(const ClusterSpec& cluster, const Collective& collective, const Program& program);

/// ReductionTimes splits all_reduce_time() by its cause. Each phase counts toward the slower of its two kinds
/// of links.
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
